internal import EarshotHTTP
internal import EarshotWire

/// Sharing between users: which of their requests share a flight and a stored response.
///
/// With the setting `share-between-users`, anonymous requests of all users and of the administrator have one partition,
/// which follows the rules of a shared cache. Whether a response may be shared is known when it arrives. If it may not, it
/// goes to the requests of one principal, and no other request joins its flight. The requests of others begin again, each
/// in the partition of its principal.
extension Principals {
    /// Partition of flights and stored responses to which a request belongs: the name of its principal and a space, or nil
    /// for requests of the administrator and for those that all principals share. Only requests of one partition share a
    /// fetch or a response.
    static func partition(
        of interest: Handle<Interest>, _ request: HTTPRequest, _ options: Fetch.Options, in records: inout Records
    ) -> String? {
        let principal = records.handlers[records.requests[interest].handler].principal
        guard principal != PrincipalTable.administrator else { return nil }
        return partition(
            of: records.principals.name(of: principal), request, options,
            sharing: records.settings[.shareBetweenUsers] == 1)
    }

    /// - Parameter isSharing: whether anonymous requests of all principals share.
    @inline(never)
    private static func partition(
        of principal: PrincipalName?, _ request: HTTPRequest, _ options: Fetch.Options, sharing isSharing: Bool
    ) -> String? {
        // A growing body is read before anyone can tell whether it may be shared.
        let mayShare =
            isSharing && options.coalesces && !options.streams && request.method.canCoalesce
            && options.cache != .noStore && CredentialRule.standard.isAnonymous(request)
            && !CacheControl(request: request.fields).noStore
        guard let principal, !mayShare else { return nil }
        return "\(principal) "
    }

    /// Requests that a response leaves, because users may not share it.
    struct Separation {
        /// Requests of other principals than the first request's.
        var leaving: [Handle<Interest>] = []
        /// Partition in which no request joins the flight any more; nil if users share none.
        var partition: String?
    }

    /// Returns the requests of a flight that a response with these fields must not serve; nil if users may share it.
    static func separation(
        of flight: Handle<Flight>, _ fields: HeaderFields, in records: inout Records
    ) -> Separation? {
        let isSharing = records.settings[.shareBetweenUsers] == 1
        // Requests that joined before the setting was switched off are separated as well.
        guard isSharing || records.flights.onlyInterest(of: flight) == nil,
            records.flights[flight].isOpenToUsers, !CacheRule.mayBeShared(fields)
        else { return nil }
        var separation = Separation()
        let holder = records.flights.firstInterest(of: flight).map { records.principal(of: $0) }
        records.forEachInterest(of: flight) { records, interest in
            if records.principal(of: interest) != holder, !records.isDoomed(interest) {
                separation.leaving.append(interest)
            }
        }
        if isSharing {
            separation.partition = ownPartition(of: holder ?? PrincipalTable.administrator, in: &records)
        }
        return separation
    }

    /// Partition of a principal's requests that it does not share. That of the administrator is a space, because nil is
    /// shared.
    static func ownPartition(of principal: Handle<Principal>, in records: inout Records) -> String {
        "\(records.principals.name(of: principal)?.description ?? "") "
    }
}
