import EarshotWire
import Testing

/// Agreement of `protocols/vectors` and the code.
struct VectorTests {
    @Test(arguments: try Vector.accepted("good"))
    func `a good head is read and written again byte by byte`(vector: Vector) throws {
        let message = try vector.side.decode(vector.head)
        #expect(String(decoding: message.encoded(), as: UTF8.self) == String(decoding: vector.head, as: UTF8.self))
        #expect(message.encoded() == vector.head)
        #expect(try vector.side.decode(message.encoded()) == message)
    }

    @Test(arguments: try Vector.accepted("loose"))
    func `a loose head means what the good one of its name means`(vector: Vector) throws {
        let twin = vector.name.prefix { $0 != "." }
        let good = try DocumentFolder.bytes("protocols/vectors/good/\(vector.side.rawValue)/\(twin).ear")
        #expect(vector.head != good)
        #expect(try vector.side.decode(vector.head) == vector.side.decode(good))
    }

    @Test(arguments: try Vector.refused() + Vector.generated())
    func `a head is refused with its code or not at all`(vector: Vector) throws {
        do throws(WireError) {
            let message = try vector.side.decode(vector.head)
            #expect(vector.code == nil, "it was read")
            #expect(try vector.side.decode(message.encoded()) == message)
        } catch {
            #expect(error.code.rawValue == vector.code)
            #expect(error.detail.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7f })
        }
    }

    @Test func `there are vectors of every kind for every side`() throws {
        for side in Side.allCases {
            #expect(try Vector.accepted("good").contains { $0.side == side })
            #expect(try Vector.accepted("loose").contains { $0.side == side })
            #expect(try Vector.refused().contains { $0.side == side && $0.code == "bad-message" })
            #expect(try Vector.refused().contains { $0.side == side && $0.code == "unknown-verb" })
            #expect(try Vector.generated().contains { $0.side == side && $0.code == "limit" })
        }
    }
}
