internal import EarshotWire

/// Requests: their records, the IDs that are taken, the requests of each owner, and the heads and bodies that they
/// hold.
///
/// Handlers, flights and clients are known by handle alone. `Interest` documents the phases of a request.
package struct RequestBook {
    private var interests = Slab<Interest>()
    private var rareOptions = Slab<Interest.RareOptions>()
    /// Listed requests by handler and ID. The table stores handles only, since the records hold the keys.
    private var interestsByRequestName = HandleTable<Interest>()
    /// Open requests by owner. The owner's session holds the ends of its list.
    private var openRequestChainsByOwner = LinkedLists<Interest>()
    /// Long heads of requests that have not ended.
    var requestHeads = RequestHeads()
    /// Bodies of requests that flights will send.
    var requestBodies = RequestBodies()

    // MARK: Queries

    // By address, because the coroutine of a `_read` is not inlined: 840 instructions of an assignment.
    package subscript(interest: Handle<Interest>) -> Interest {
        unsafeAddress { unsafe interests.address(of: interest) }
        unsafeMutableAddress { unsafe interests.mutableAddress(of: interest) }
    }

    package subscript(number: Handle<Interest.RareOptions>) -> Interest.RareOptions {
        unsafeAddress { unsafe rareOptions.address(of: number) }
        unsafeMutableAddress { unsafe rareOptions.mutableAddress(of: number) }
    }

    var count: Int { interests.count }

    /// One more than the highest place in use.
    package var indexBound: Int { interests.bound }

    /// Handles of all requests. O(requests).
    var indices: [Handle<Interest>] { interests.indices }

    var isEmpty: Bool {
        count == 0 && rareOptions.count == 0 && interestsByRequestName.isEmpty && requestBodies == RequestBodies()
            && requestHeads == RequestHeads()
    }

    func contains(_ interest: Handle<Interest>) -> Bool { interests.contains(interest) }

    /// Returns the request at a place; nil if there is none.
    package func interest(atIndex place: Int) -> Handle<Interest>? { interests.handle(atIndex: place) }

    /// Returns a reference to a request, which must exist.
    func reference(to interest: Handle<Interest>) -> GenerationalHandle<Interest> { interests.reference(to: interest) }

    /// Returns the request of a reference; nil if it is gone.
    @inline(__always)
    func resolve(_ reference: GenerationalHandle<Interest>) -> Handle<Interest>? { interests.resolve(reference) }

    /// Hash of a request's ID, which lookups and insertions take so that it is computed once.
    @inline(__always)
    static func requestIDHash(_ request: RequestID, of handler: Handle<HandlerEntry>) -> UInt32 {
        NumberHash.hash(
            UInt64(truncatingIfNeeded: request.description.hashValue), UInt64(UInt32(bitPattern: handler.recordNumber)))
    }

    /// The request that holds this ID; nil if the ID is free.
    ///
    /// - Parameter hash: `requestIDHash(_:of:)` of the ID.
    @inline(__always)
    func interestHoldingID(
        _ request: RequestID, of handler: Handle<HandlerEntry>, _ hash: UInt32
    ) -> Handle<Interest>? {
        interestsByRequestName.findRecord(withHash: hash) {
            interests[$0].handler == handler && interests[$0].request == request
        }
    }

    // MARK: Updates

    /// Adds a request, whose ID must be free.
    ///
    /// - Parameter hash: `requestIDHash(_:of:)` of its ID.
    mutating func insertInterest(_ record: Interest, idHash hash: UInt32) -> Handle<Interest> {
        let interest = interests.insert(record)
        interestsByRequestName.insert(interest, hash)
        return interest
    }

    /// Frees the ID of a listed request.
    mutating func freeRequestID(_ interest: Handle<Interest>) {
        interests[interest].isRequestIDTaken = false
        interestsByRequestName.remove(
            interest, Self.requestIDHash(interests[interest].request, of: interests[interest].handler))
    }

    /// Frees the record of a request whose ID is free.
    mutating func removeInterest(_ interest: Handle<Interest>) {
        if let number = interests[interest].rareOptions { rareOptions.destroy(number) }
        interests.destroy(interest)
    }

    /// Adds rare options to a request that has none.
    mutating func setRareOptions(of interest: Handle<Interest>, _ value: Interest.RareOptions) {
        interests[interest].rareOptions = rareOptions.insert(value)
    }

    /// Changes the rare options of a request, which are added if needed.
    mutating func updateRareOptions(of interest: Handle<Interest>, _ change: (inout Interest.RareOptions) -> Void) {
        let number = interests[interest].rareOptions ?? rareOptions.insert(Interest.RareOptions())
        interests[interest].rareOptions = number
        change(&rareOptions[number])
    }

    /// Adds an open request to those of its owner.
    mutating func appendOpenRequest(_ interest: Handle<Interest>, toOwned owned: inout LinkedList<Interest>) {
        openRequestChainsByOwner.append(interest, to: &owned)
    }

    /// Removes a request from the open ones of its owner.
    mutating func removeOpenRequest(_ interest: Handle<Interest>, fromOwned owned: inout LinkedList<Interest>) {
        openRequestChainsByOwner.remove(interest, from: &owned)
    }

    // MARK: Memory

    func hasSpareCapacity(beyond: Int) -> Bool { interests.hasSpareCapacity(beyond: beyond) }

    mutating func releaseSpareCapacity(retaining least: Int) {
        interests.releaseSpareCapacity(retaining: least)
        rareOptions.releaseSpareCapacity(retaining: least)
        interestsByRequestName.releaseSpareCapacity(retaining: least)
        openRequestChainsByOwner.releaseSpareCapacity(beyond: interests.bound, retaining: least)
    }
}

extension RequestBook {
    /// Returns a sentence for each violated invariant. O(requests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let listed = indices.filter { interests[$0].isRequestIDTaken }
        check(
            interestsByRequestName.count == listed.count,
            "12: \(listed.count) requests are listed, \(interestsByRequestName.count) IDs are taken")
        for number in listed {
            let (request, handler) = (interests[number].request, interests[number].handler)
            check(
                interestHoldingID(request, of: handler, Self.requestIDHash(request, of: handler)) == number,
                "1: the ID of request \(number) names another one")
        }
        let options = indices.compactMap { interests[$0].rareOptions }
        check(
            Set(options).count == options.count && options.count == rareOptions.count
                && options.allSatisfy(rareOptions.contains),
            "12: \(options.count) requests have rare options, \(rareOptions.count) are kept")
        return faults
    }
}
