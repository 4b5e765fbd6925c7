import EarshotWire
import Testing

@testable import EarshotCore

/// The book of requests in isolation: IDs, rare options, owners and memory.
struct RequestBookTests {
    private var book = RequestBook()
    private var serial: UInt64 = 0

    private mutating func add(_ id: String, to handler: Handle<HandlerEntry> = 0) throws -> Handle<Interest> {
        let request = try #require(RequestID(id))
        serial += 1
        let record = Interest(
            request: request, requestedAt: MonotonicTime(nanoseconds: 0), contentHash: 0, generation: serial,
            handler: handler,
            owner: nil, priority: .normal, usesWarmDelivery: false, isReplacement: false, endsAfterOneAttempt: false)
        return book.insertInterest(record, idHash: RequestBook.requestIDHash(request, of: handler))
    }

    private func find(_ id: String, of handler: Handle<HandlerEntry> = 0) throws -> Handle<Interest>? {
        let request = try #require(RequestID(id))
        return book.interestHoldingID(request, of: handler, RequestBook.requestIDHash(request, of: handler))
    }

    @Test mutating func `an ID is taken for each handler until its request is unlisted`() throws {
        let first = try add("a")
        let other = try add("a", to: 1)
        #expect(try find("a") == first && find("a", of: 1) == other && find("b") == nil)
        book.freeRequestID(first)
        #expect(try find("a") == nil && find("a", of: 1) == other && book.contains(first))
        let second = try add("a")
        #expect(try find("a") == second && book.count == 3 && book.checkInvariants() == [])
    }

    @Test mutating func `a reference does not find the next request in the same place`() throws {
        let first = try add("a")
        let reference = book.reference(to: first)
        #expect(book.resolve(reference) == first)
        book.freeRequestID(first)
        book.removeInterest(first)
        #expect(book.resolve(reference) == nil)
        let second = try add("b")
        #expect(second == first && book.resolve(reference) == nil)
    }

    @Test mutating func `rare options are added once and freed with their request`() throws {
        let request = try add("a")
        #expect(book[request].rareOptions == nil)
        book.updateRareOptions(of: request) { $0.maximumBodyBytes = 5 }
        book.updateRareOptions(of: request) { $0.maximumBytesPerSecond = 7 }
        let number = try #require(book[request].rareOptions)
        #expect(
            book[number].maximumBodyBytes == 5 && book[number].maximumBytesPerSecond == 7
                && book.checkInvariants() == [])
        book.freeRequestID(request)
        book.removeInterest(request)
        #expect(book.isEmpty && book.checkInvariants() == [])
    }

    @Test mutating func `the invariants detect rare options that two requests name`() throws {
        let (first, second) = (try add("a"), try add("b"))
        book.updateRareOptions(of: first) { $0.maximumBodyBytes = 5 }
        book[second].rareOptions = book[first].rareOptions
        #expect(book.checkInvariants() == ["12: 2 requests have rare options, 1 are kept"])
    }

    @Test mutating func `the invariants detect an ID that is taken by no listed request`() throws {
        let request = try add("a")
        book[request].isRequestIDTaken = false
        #expect(book.checkInvariants() == ["12: 0 requests are listed, 1 IDs are taken"])
    }

    @Test mutating func `open requests of an owner keep their order`() throws {
        var owned = LinkedList<Interest>()
        let requests = [try add("a"), try add("b"), try add("c")]
        for request in requests { book.appendOpenRequest(request, toOwned: &owned) }
        book.removeOpenRequest(requests[0], fromOwned: &owned)
        #expect(owned.first == requests[1] && owned.last == requests[2] && owned.count == 2)
    }

    @Test mutating func `released room keeps requests, IDs and rare options`() throws {
        let requests = try (0..<64).map { try add("\($0)") }
        book.updateRareOptions(of: requests[0]) { $0.maximumBodyBytes = 5 }
        for request in requests[1...] {
            book.freeRequestID(request)
            book.removeInterest(request)
        }
        #expect(book.hasSpareCapacity(beyond: 0))
        book.releaseSpareCapacity(retaining: 0)
        #expect(!book.hasSpareCapacity(beyond: 0) && book.indexBound == 1)
        #expect(try find("0") == requests[0] && book.checkInvariants() == [])
    }
}
