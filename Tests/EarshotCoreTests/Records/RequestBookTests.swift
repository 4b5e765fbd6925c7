import EarshotWire
import Testing

@testable import EarshotCore

/// The book of requests in isolation: IDs, extras, owners and memory.
struct RequestBookTests {
    private var book = RequestBook()
    private var serial: UInt64 = 0

    private mutating func add(_ id: String, to handler: Handle<HandlerEntry> = 0) throws -> Handle<Interest> {
        let request = try #require(RequestID(id))
        serial += 1
        let record = Interest(
            request: request, requestedAt: Tick(nanoseconds: 0), fingerprint: 0, generation: serial, handler: handler,
            owner: nil, priority: .normal, isWarm: false, isReplacement: false, isTriedOnce: false)
        return book.insert(record, RequestBook.hash(request, of: handler))
    }

    private func find(_ id: String, of handler: Handle<HandlerEntry> = 0) throws -> Handle<Interest>? {
        let request = try #require(RequestID(id))
        return book.listed(request, of: handler, RequestBook.hash(request, of: handler))
    }

    @Test mutating func `an ID is taken for each handler until its request is unlisted`() throws {
        let first = try add("a")
        let other = try add("a", to: 1)
        #expect(try find("a") == first && find("a", of: 1) == other && find("b") == nil)
        book.freeID(first)
        #expect(try find("a") == nil && find("a", of: 1) == other && book.contains(first))
        let second = try add("a")
        #expect(try find("a") == second && book.count == 3 && book.checkInvariants() == [])
    }

    @Test mutating func `a reference does not find the next request in the same place`() throws {
        let first = try add("a")
        let reference = book.reference(to: first)
        #expect(book.resolve(reference) == first)
        book.freeID(first)
        book.remove(first)
        #expect(book.resolve(reference) == nil)
        let second = try add("b")
        #expect(second == first && book.resolve(reference) == nil)
    }

    @Test mutating func `extras are added once and freed with their request`() throws {
        let request = try add("a")
        #expect(book[request].extras == nil)
        book.changeExtras(of: request) { $0.maxBytes = 5 }
        book.changeExtras(of: request) { $0.limitRate = 7 }
        let number = try #require(book[request].extras)
        #expect(book[number].maxBytes == 5 && book[number].limitRate == 7 && book.checkInvariants() == [])
        book.freeID(request)
        book.remove(request)
        #expect(book.isEmpty && book.checkInvariants() == [])
    }

    @Test mutating func `the invariants detect extras that two requests name`() throws {
        let (first, second) = (try add("a"), try add("b"))
        book.changeExtras(of: first) { $0.maxBytes = 5 }
        book[second].extras = book[first].extras
        #expect(book.checkInvariants() == ["12: 2 requests have extras, 1 are kept"])
    }

    @Test mutating func `the invariants detect an ID that is taken by no listed request`() throws {
        let request = try add("a")
        book[request].isListed = false
        #expect(book.checkInvariants() == ["12: 0 requests are listed, 1 IDs are taken"])
    }

    @Test mutating func `open requests of an owner keep their order`() throws {
        var owned = Chain<Interest>()
        let requests = [try add("a"), try add("b"), try add("c")]
        for request in requests { book.appendOwned(request, to: &owned) }
        book.removeOwned(requests[0], from: &owned)
        #expect(owned.first == requests[1] && owned.last == requests[2] && owned.count == 2)
    }

    @Test mutating func `released room keeps requests, IDs and extras`() throws {
        let requests = try (0..<64).map { try add("\($0)") }
        book.changeExtras(of: requests[0]) { $0.maxBytes = 5 }
        for request in requests[1...] {
            book.freeID(request)
            book.remove(request)
        }
        #expect(book.canShrink(least: 0))
        book.releaseRoom(least: 0)
        #expect(!book.canShrink(least: 0) && book.bound == 1)
        #expect(try find("0") == requests[0] && book.checkInvariants() == [])
    }
}
