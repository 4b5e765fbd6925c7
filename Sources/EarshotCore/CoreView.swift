package import EarshotWire

/// The state of the core at one moment, from which EarshotQueries composes the answer to a QUERY.
///
/// It shares the storage of all tables, so it must not exist while the core changes them.
public struct CoreView {
    package let records: Records
    package let brokerInstance: BrokerInstance
    package let requestTimes: RequestTimes
    package let isLoadingDurables: Bool
    package let storedParts: (parts: Int, bytes: Int)
    package let childFailures: [ChildCrashLoop]
    package let doorReport: HTTPDoorState?
    package let pathFaults: [PathFailure]
    package let now: MonotonicTime
}

/// A QUERY, and the part of the core that its sender may see.
public struct ScopedQuery: Sendable {
    package let query: Query
    package let page: QueryPage
    package let principal: Handle<Principal>
    package let isAdministrator: Bool
}

/// Composes the answer to a QUERY, as JSON. A pure function, because EarshotQueries is above the core.
public typealias Answering = @Sendable (ScopedQuery, CoreView) -> [UInt8]

extension BrokerCore {
    /// Sends the reply to a query.
    ///
    /// - Parameter number: number of the QUERY; 0 for none.
    @inline(never)
    mutating func answerQuery(
        _ query: Query, _ page: QueryPage, to client: Handle<ClientSession>, answering number: UInt64
    ) {
        let (id, principal) = (records.clients[client].id, records.clients[client].principal)
        let scoped = ScopedQuery(
            query: query, page: page, principal: principal, isAdministrator: records.clients[client].isAdministrator)
        let json = answering(scoped, view)
        records.outbox.actions.append(
            .client(
                number == 0
                    ? .answerQuery(id, query, json: json)
                    : .replyToNumberedMessage(id, .queryAnswer(query), json: json, to: number)))
        if case .explainRequest(let handler, let request) = query {
            Cluster.refreshClaim(of: request, HandlerKey(principal, handler), in: &records)
        }
    }

    private var view: CoreView {
        CoreView(
            records: records, brokerInstance: brokerInstance, requestTimes: requestTimes,
            isLoadingDurables: isLoadingDurables, storedParts: storedParts, childFailures: childFailures,
            doorReport: doorReport, pathFaults: pathFaults, now: records.latestEventTime)
    }
}
