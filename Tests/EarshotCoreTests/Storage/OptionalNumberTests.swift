import Testing

@testable import EarshotCore

struct OptionalNumberTests {
    private struct Record: Equatable {
        @OptionalNumber var owner: Int32?
        @OptionalNumber var flight: Int32? = nil
    }

    @Test(arguments: [nil, 0, 1, .max] as [Int32?])
    func `a number and its absence read back`(_ number: Int32?) {
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
