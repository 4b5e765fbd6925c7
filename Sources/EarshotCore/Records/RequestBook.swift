internal import EarshotWire

/// Requests: their records, the IDs that are taken, the requests of each owner, and the heads and bodies that they hold.
///
/// Handlers, flights and clients are known by handle alone. `Interest` documents the phases of a request.
package struct RequestBook {
    private var interests = Slab<Interest>()
    private var extras = Slab<Interest.Extras>()
    /// Listed requests by handler and ID. The table stores handles only, since the records hold the keys.
    private var handlesByName = HandleTable<Interest>()
    /// Open requests by owner. The owner's session holds the ends of its list.
    private var ownerChains = Chains<Interest>()
    /// Long heads of requests that have not ended.
    var heads = RequestHeads()
    /// Bodies of requests that flights will send.
    var bodies = RequestBodies()

    // MARK: Queries

    // By address, because the coroutine of a `_read` is not inlined: 840 instructions of an assignment.
    package subscript(interest: Handle<Interest>) -> Interest {
        unsafeAddress { unsafe interests.address(of: interest) }
        unsafeMutableAddress { unsafe interests.mutableAddress(of: interest) }
    }

    package subscript(number: Handle<Interest.Extras>) -> Interest.Extras {
        unsafeAddress { unsafe extras.address(of: number) }
        unsafeMutableAddress { unsafe extras.mutableAddress(of: number) }
    }

    var count: Int { interests.count }

    /// One more than the highest place in use.
    package var bound: Int { interests.bound }

    /// Handles of all requests. O(requests).
    var indices: [Handle<Interest>] { interests.indices }

    var isEmpty: Bool {
        count == 0 && extras.count == 0 && handlesByName.isEmpty && bodies == RequestBodies() && heads == RequestHeads()
    }

    func contains(_ interest: Handle<Interest>) -> Bool { interests.contains(interest) }

    /// Returns the request at a place; nil if there is none.
    package func handle(at place: Int) -> Handle<Interest>? { interests.handle(at: place) }

    /// Returns a reference to a request, which must exist.
    func reference(to interest: Handle<Interest>) -> GenerationalHandle<Interest> { interests.reference(to: interest) }

    /// Returns the request of a reference; nil if it is gone.
    @inline(__always)
    func resolve(_ reference: GenerationalHandle<Interest>) -> Handle<Interest>? { interests.resolve(reference) }

    /// Hash of a request's ID, which lookups and insertions take so that it is computed once.
    @inline(__always)
    static func hash(_ request: RequestID, of handler: Handle<HandlerEntry>) -> UInt32 {
        NumberHash.of(
            UInt64(truncatingIfNeeded: request.description.hashValue), UInt64(UInt32(bitPattern: handler.number)))
    }

    /// The request with this ID while the ID is taken.
    ///
    /// - Parameter hash: `hash(_:of:)` of the ID.
    @inline(__always)
    func listed(_ request: RequestID, of handler: Handle<HandlerEntry>, _ hash: UInt32) -> Handle<Interest>? {
        handlesByName.find(hash) { interests[$0].handler == handler && interests[$0].request == request }
    }

    // MARK: Updates

    /// Adds a request, whose ID must be free.
    ///
    /// - Parameter hash: `hash(_:of:)` of its ID.
    mutating func insert(_ record: Interest, _ hash: UInt32) -> Handle<Interest> {
        let interest = interests.insert(record)
        handlesByName.insert(interest, hash)
        return interest
    }

    /// Frees the ID of a listed request.
    mutating func freeID(_ interest: Handle<Interest>) {
        interests[interest].isListed = false
        handlesByName.remove(interest, Self.hash(interests[interest].request, of: interests[interest].handler))
    }

    /// Frees the record of a request whose ID is free.
    mutating func remove(_ interest: Handle<Interest>) {
        if let number = interests[interest].extras { extras.remove(number) }
        interests.remove(interest)
    }

    /// Gives extras to a request that has none.
    mutating func setExtras(of interest: Handle<Interest>, _ value: Interest.Extras) {
        interests[interest].extras = extras.insert(value)
    }

    /// Changes the extras of a request, which are added if needed.
    mutating func changeExtras(of interest: Handle<Interest>, _ change: (inout Interest.Extras) -> Void) {
        let number = interests[interest].extras ?? extras.insert(Interest.Extras())
        interests[interest].extras = number
        change(&extras[number])
    }

    /// Adds an open request to those of its owner.
    mutating func appendOwned(_ interest: Handle<Interest>, to owned: inout Chain<Interest>) {
        ownerChains.append(interest, to: &owned)
    }

    /// Removes a request from the open ones of its owner.
    mutating func removeOwned(_ interest: Handle<Interest>, from owned: inout Chain<Interest>) {
        ownerChains.remove(interest, from: &owned)
    }

    // MARK: Memory

    func canShrink(least: Int) -> Bool { interests.canShrink(least: least) }

    mutating func releaseRoom(least: Int) {
        interests.releaseRoom(least: least)
        extras.releaseRoom(least: least)
        handlesByName.releaseRoom(least: least)
        ownerChains.releaseRoom(beyond: interests.bound, least: least)
    }
}

extension RequestBook {
    /// Returns a sentence for each violated invariant. O(requests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        let listed = indices.filter { interests[$0].isListed }
        check(
            handlesByName.count == listed.count,
            "12: \(listed.count) requests are listed, \(handlesByName.count) IDs are taken")
        for number in listed {
            let (request, handler) = (interests[number].request, interests[number].handler)
            check(
                self.listed(request, of: handler, Self.hash(request, of: handler)) == number,
                "1: the ID of request \(number) names another one")
        }
        let owners = indices.compactMap { interests[$0].extras }
        check(
            Set(owners).count == owners.count && owners.count == extras.count && owners.allSatisfy(extras.contains),
            "12: \(owners.count) requests have extras, \(extras.count) are kept")
        return faults
    }
}
