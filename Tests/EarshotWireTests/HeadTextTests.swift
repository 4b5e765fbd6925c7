import Testing

@testable import EarshotWire

/// Words and fields of a head as slices equal those of an array of strings.
struct HeadTextTests {
    /// Names that are as similar to each other as possible.
    private static let names = [
        "", "a", "b", "aa", "ab", "ba", "aaa", "aab", "aba", "file", "fil", "filf", "é", "a\u{301}",
    ]

    /// Returns these bytes as a slice of a larger array.
    private static func text(_ bytes: [UInt8], after prefix: [UInt8] = Array("ab".utf8)) -> HeadText {
        let head = prefix + bytes + Array("ab".utf8)
        return HeadText(
            head, HeadFields.Extent(start: UInt32(prefix.count), end: UInt32(prefix.count + bytes.count)))
    }

    @Test func `a text is a name when its bytes are the name's, wherever in a head it stands`() {
        for text in Self.names {
            for name in Self.names {
                let isSame = Array(text.utf8) == Array(name.utf8)
                for prefix in [[], Array("ab".utf8), [UInt8](repeating: 97, count: 70)] {
                    #expect((Self.text(Array(text.utf8), after: prefix) == name) == isSame, "\(text), \(name)")
                    #expect((name ~= Self.text(Array(text.utf8), after: prefix)) == isSame)
                }
            }
        }
    }

    @Test func `a name that differs in any one byte is another`() {
        let name = "a-name-of-some-length"
        #expect(Self.text(Array(name.utf8)) == name)
        for index in name.utf8.indices {
            for change in [1, 0x20, 0x80] as [UInt8] {
                var bytes = Array(name.utf8)
                bytes[name.utf8.distance(from: name.utf8.startIndex, to: index)] ^= change
                #expect(!(Self.text(bytes) == name))
            }
        }
    }

    @Test func `a name that is not all ASCII is compared by its bytes, not by what it looks like`() {
        #expect(Self.text(Array("é".utf8)) == "é")
        // The same letter in two scalars: equal as a String, but not here.
        #expect(!(Self.text(Array("e\u{301}".utf8)) == "\u{e9}"))
    }

    @Test func `text that is no part of a head, and text without its first bytes, are compared by their own bytes`() {
        let bytes = Array("xfile".utf8)
        #expect(HeadText(bytes: bytes[1...]) == "file")
        #expect(HeadText(bytes: bytes[1...]).string == "file")
        #expect(Self.text(bytes).dropFirst(1) == "file")
        #expect(!(Self.text(bytes).dropFirst(2) == "file"))
        #expect(Self.text(bytes).dropFirst(5).count == 0)
    }

    @Test(
        arguments: [
            ([], ""), ([0xff], "\u{fffd}"), (Array("é".utf8), "é"), ([0x61, 0xc3], "a\u{fffd}"),
            ([0xed, 0xa0, 0x80], "\u{fffd}\u{fffd}\u{fffd}"), ([0x80, 0x61], "\u{fffd}a"),
        ] as [([UInt8], String)])
    func `bytes that are no UTF-8 become U+FFFD, and do not take the next byte along`(bytes: [UInt8], string: String) {
        #expect(Self.text(bytes).string == string)
    }

    @Test(arguments: 1...3 as ClosedRange<UInt64>)
    func `fields are those of an array, in their order, and of a name the last one`(seed: UInt64) {
        var random = Seeded(seed)
        for _ in 0..<2_000 {
            var head = random.bytes(0..<10)
            var places: [HeadFields.Extent] = []
            var model: [(name: [UInt8], value: [UInt8])] = []
            func add(_ bytes: [UInt8]) {
                places.append(HeadFields.Extent(start: UInt32(head.count), end: UInt32(head.count + bytes.count)))
                head += bytes + random.bytes(0..<2)
            }
            // Words before the fields are operands.
            let operands = random.below(4)
            for _ in 0..<operands { add(random.bytes(1..<4)) }
            for _ in 0..<random.below(12) {
                model.append((random.bytes(1..<3), random.bytes(0..<4)))
                if let (name, value) = model.last {
                    add(name)
                    add(value)
                }
            }
            let fields = HeadFields(head, places[operands...])
            #expect(fields.map { Array($0.name.bytes) } == model.map(\.name))
            #expect(fields.map { Array($0.value.bytes) } == model.map(\.value))
            for name in Self.names {
                let expected = model.last { $0.name == Array(name.utf8) }?.value
                #expect(fields[name].map { Array($0.bytes) } == expected)
            }
        }
    }

    @Test func `a head without fields has none, and a loop over fields may be begun again`() {
        let none = HeadFields([1, 2, 3], [])
        #expect(none["a"] == nil)
        #expect(Array(none).isEmpty)
        let place = HeadFields.Extent(start: 0, end: 1)
        let one = HeadFields([97], [place, place])
        #expect(one.map(\.value.string) + one.map(\.value.string) == ["a", "a"])
        var iterator = one.makeIterator()
        #expect(iterator.next() != nil)
        #expect(iterator.next() == nil)
        #expect(iterator.next() == nil)
    }

    /// Texts of a few letters, so that equal ones are frequent.
    private struct Seeded {
        private var state: UInt64

        init(_ seed: UInt64) { state = seed }

        mutating func below(_ bound: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) % bound
        }

        mutating func bytes(_ counts: Range<Int>) -> [UInt8] {
            (0..<counts.lowerBound + below(counts.count)).map { _ in [97, 97, 97, 98, 0xff][below(5)] }
        }
    }
}
