internal import EarshotHTTP
internal import EarshotWire

/// Sharing between users: which of their requests share a flight and a stored response.
///
/// With the setting `share-between-users`, anonymous requests of all users and of the administrator have one partition,
/// which follows the rules of a shared cache. Whether a response may be shared is known when it arrives. If it may not, it
/// goes to the requests of one principal, and no other request joins its flight. The requests of others begin again, each
/// in the partition of its principal.
extension BrokerCore {
    /// Partition of flights and stored responses to which a request belongs: the key of its FETCH, after the principal and
    /// a space unless the principal is the administrator. Only requests of one partition share a fetch or a response.
    /// No key contains a space.
    @inline(__always)
    func partition(of interest: Handle<Interest>, _ request: HTTPRequest, _ options: Fetch.Options) -> String? {
        let principal = handlers[interests[interest].handler].principal
        guard principal != PrincipalTable.administrator else { return options.key }
        return Self.partition(
            of: principals.name(of: principal), request, options, sharing: settings[.shareBetweenUsers] == 1)
    }

    /// - Parameter isSharing: whether anonymous requests of all principals share.
    @inline(never)
    private static func partition(
        of principal: PrincipalName?, _ request: HTTPRequest, _ options: Fetch.Options, sharing isSharing: Bool
    ) -> String? {
        // A growing body is read before anyone can tell whether it may be shared.
        let mayShare =
            isSharing && options.key == nil && options.coalesces && !options.streams && request.method.canCoalesce
            && options.cache != .noStore && CredentialRule.standard.isAnonymous(request)
            && !CacheControl(request: request.fields).noStore
        guard let principal, !mayShare else { return options.key }
        return "\(principal) \(options.key ?? "")"
    }

    /// Rules of the cache for a flight.
    @inline(__always)
    func cacheRule(for flight: Handle<Flight>) -> CacheRule {
        CacheRule(isShared: principals.count > 1 && isSharing && isOpenToUsers(flight))
    }

    private var isSharing: Bool { settings[.shareBetweenUsers] == 1 }

    /// Whether anonymous requests of several users can have joined a flight.
    private func isOpenToUsers(_ flight: Handle<Flight>) -> Bool {
        flights[flight].partition == nil && !flights[flight].isAlone
            && CredentialRule.standard.isAnonymous(flights[flight].request)
    }

    /// Gives a flight to the principal of its first request if users may not share a response with these fields.
    @inline(__always)
    mutating func separateUsers(of flight: Handle<Flight>, _ fields: HeaderFields) {
        guard principals.count > 1, flights[flight].partition == nil else { return }
        separate(flight, fields)
    }

    @inline(never)
    private mutating func separate(_ flight: Handle<Flight>, _ fields: HeaderFields) {
        let isSharing = isSharing
        // Requests that joined before the setting was switched off are separated as well.
        guard isSharing || flights.onlyInterest(of: flight) == nil, isOpenToUsers(flight),
            !CacheRule.mayBeShared(fields)
        else { return }
        if cluster != nil, isSharing { withhold(flight) }
        let keeper = flights.firstInterest(of: flight).map { principal(of: $0) }
        forEachInterest(of: flight) { core, interest in
            if core.principal(of: interest) != keeper, !core.isDoomed(interest) { core.beginApart(interest) }
        }
        guard isSharing else { return }
        flights.isolate(flight, in: ownPartition(of: keeper ?? PrincipalTable.administrator))
    }

    /// Partition of a principal's requests without a key that it does not share.
    private func ownPartition(of principal: Handle<Principal>) -> String {
        "\(principals.name(of: principal)?.description ?? "") "
    }

    /// Lets a request leave a flight for one in the partition of its principal.
    private mutating func beginApart(_ interest: Handle<Interest>) {
        guard let former = interests[interest].flight else { return }
        let start = leave(former, interest)
        // The flight with the response is needed by its first request. One that was redirected to it may be empty.
        if case .following = flights[former].phase { dropIfUnwanted(former) }
        beginAgain(interest, start, partition: ownPartition(of: principal(of: interest)))
    }

    /// Principal whose part of the cache a flight's response takes; nil for the administrator.
    func cacheOwner(of flight: Handle<Flight>) -> PrincipalName? {
        if let partition = flights[flight].partition {
            return partition.firstIndex(of: " ").flatMap { PrincipalName(String(partition[..<$0])) }
        }
        guard principals.count > 1 else { return nil }
        if let interest = flights.firstInterest(of: flight) { return principals.name(of: principal(of: interest)) }
        if let owner = cachePlans[flight]?.owner { return owner }
        guard let client = flights.deferrals[flight]?.message?.client else { return nil }
        return principal(of: client)
    }
}
