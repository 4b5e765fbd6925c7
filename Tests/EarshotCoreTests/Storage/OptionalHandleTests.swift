import Testing

@testable import EarshotCore

struct OptionalHandleTests {
    private struct Record: Equatable {
        @OptionalHandle var owner: Handle<Int>?
        @OptionalHandle var flight: Handle<Int>? = nil
    }

    @Test(arguments: [nil, 0, 1, Handle(place: .max)] as [Handle<Int>?])
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
