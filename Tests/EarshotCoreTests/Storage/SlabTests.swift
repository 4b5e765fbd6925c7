import Testing

@testable import EarshotCore

/// Lifetime of records in a slab: each keeps its number until it is removed, and releases its references then.
struct SlabTests {
    /// Reference that records hold. Its count reveals a lost or doubly destroyed record.
    private final class Token {}

    private struct Record {
        var value: Int
        var token: Token
        var text: String
    }

    @Test(arguments: [false, true])
    func `a slab that was large releases its room, and its records keep their numbers`(isShared: Bool) {
        var slab = Slab<Int>()
        for value in 0..<10_000 { _ = slab.insert(value) }
        let copy = isShared ? slab : Slab<Int>()
        for number: Handle<Int> in 0..<10_000 where ![3, 700].contains(number) { slab.destroy(number) }
        #expect(slab.hasSpareCapacity(beyond: 0) && !slab.hasSpareCapacity(beyond: slab.capacity))
        slab.releaseSpareCapacity(retaining: 0)
        #expect(slab.indices == [3, 700])
        #expect([slab[3], slab[700]] == [3, 700])
        #expect(slab.capacity == 701)
        #expect(!slab.contains(701) && !slab.contains(9_999))
        #expect((0..<4).map { slab.insert($0) } == [0, 1, 2, 4])
        #expect(copy.count == (isShared ? 10_000 : 0))
        for number in slab.indices { slab.destroy(number) }
        slab.releaseSpareCapacity(retaining: 0)
        #expect(slab.capacity == 0 && slab.bound == 0)
        #expect(slab.insert(1) == 0)
    }

    @Test func `a slab that is half full, or small, keeps its room`() {
        var slab = Slab<Int>()
        for value in 0..<1_000 { _ = slab.insert(value) }
        let capacity = slab.capacity
        #expect(!slab.hasSpareCapacity(beyond: 0))
        slab.releaseSpareCapacity(retaining: 0)
        for number: Handle<Int> in 0..<999 { slab.destroy(number) }
        slab.releaseSpareCapacity(retaining: 4_096)
        #expect(slab.capacity == capacity)
        // The last record stays in place, so another attempt would release no more.
        slab.releaseSpareCapacity(retaining: 0)
        #expect(slab.capacity == capacity && !slab.hasSpareCapacity(beyond: 0))
    }

    @Test(arguments: [1, 2, 3])
    func `a slab agrees with a dictionary over random insertions, changes and removals`(seed: UInt64) {
        var slab = Slab<Record>()
        var model: [Handle<Record>: Int] = [:]
        var random = SplitMix64Generator(seed: seed)
        let token = Token()
        for step in 0..<1_500 {
            if let number = model.keys.sorted().randomElement(using: &random), Bool.random(using: &random) {
                if Bool.random(using: &random) {
                    slab.destroy(number)
                    model[number] = nil
                } else {
                    slab[number].value += step
                    model[number, default: 0] += step
                }
            } else {
                let record = Record(value: step, token: token, text: "a text too long to be inline: \(step)")
                let number = slab.insert(record)
                #expect(model.updateValue(step, forKey: number) == nil)
            }
            #expect(slab.count == model.count)
        }
        #expect(slab.indices == model.keys.sorted())
        for (number, value) in model { #expect(slab[number].value == value) }
    }

    @Test func `a number is free once its record is removed, and then used again before a new one`() {
        var slab = Slab<Int>()
        let numbers = (0..<20).map { slab.insert($0) }
        slab.destroy(numbers[7])
        #expect(!slab.contains(numbers[7]))
        #expect(!slab.contains(-1))
        #expect(!slab.contains(20))
        #expect(slab.insert(100) == numbers[7])
        #expect(slab.bound == 20)
        #expect(slab[numbers[7]] == 100)
    }

    @Test func `what a record refers to ends with its removal, and with the slab`() {
        weak var removed: Token?
        weak var kept: Token?
        do {
            var slab = Slab<Token>()
            var numbers: [Handle<Token>] = []
            do {
                let tokens = (0..<100).map { _ in Token() }
                numbers = tokens.map { slab.insert($0) }
                removed = tokens[3]
                kept = tokens[99]
            }
            slab.destroy(numbers[3])
            #expect(removed == nil)
            #expect(kept != nil)
        }
        #expect(kept == nil)
    }

    @Test func `a copy keeps its records when the other changes or ends`() {
        var slab = Slab<String>()
        let numbers = (0..<8).map { slab.insert("record number \($0) of the first slab") }
        var copy = slab
        slab.destroy(numbers[0])
        slab[numbers[1]] += ", changed"
        // The capacity is eight, so both slabs grow here.
        _ = slab.insert("in place of the first")
        _ = slab.insert("in a new place")
        _ = copy.insert("in a new place of the copy")
        #expect(copy.count == 9)
        #expect(slab.count == 9)
        for number in numbers { #expect(copy[number] == "record number \(number) of the first slab") }
        #expect(slab[numbers[1]].hasSuffix(", changed"))
        slab = Slab()
        #expect(copy[numbers[7]] == "record number 7 of the first slab")
    }

    @Test func `a number that is not in use traps`() async {
        await #expect(processExitsWith: .failure) {
            var slab = Slab<Int>()
            let number = slab.insert(1)
            slab.destroy(number)
            slab[number] += 1
        }
        await #expect(processExitsWith: .failure) {
            var slab = Slab<Int>()
            let number = slab.insert(1)
            slab.destroy(number)
            slab.destroy(number)
        }
        await #expect(processExitsWith: .failure) {
            let slab = Slab<Int>()
            _ = slab[-1]
        }
    }
}

struct OptionalHandleTests {
    private struct Record: Equatable {
        @OptionalHandle var owner: Handle<Int>?
        @OptionalHandle var flight: Handle<Int>? = nil
    }

    @Test(arguments: [nil, 0, 1, Handle(indexInSlab: .max)] as [Handle<Int>?])
    func `a number and its absence read back`(_ number: Handle<Int>?) {
        var record = Record(owner: number)
        #expect(record.owner == number && record.flight == nil)
        record.flight = number
        record.owner = nil
        #expect(record.owner == nil && record.flight == number)
        #expect((record == Record(owner: nil)) == (number == nil))
    }

    @Test func `an optional number takes four bytes in a record`() {
        #expect(MemoryLayout<Record>.stride == 8)
    }
}

/// Handles of records that only a test knows, written as their places.
extension Handle: ExpressibleByIntegerLiteral {
    public init(integerLiteral place: Int32) { self.init(indexInSlab: place) }
}

extension Handle: Strideable {
    func distance(to other: Handle) -> Int { other.slabIndex - slabIndex }
    func advanced(by places: Int) -> Handle { Handle(slabIndex: slabIndex + places) }
}
