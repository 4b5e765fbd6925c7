internal import EarshotHTTP
internal import EarshotWire

/// The list of requests in answers to QUERY.
extension BrokerCore {
    /// Writes requests of all principals for the administrator, by record number, so that a request that exists during all pages is in exactly one of them.
    ///
    /// A page examines at most `examinedRequests` records. So it may be empty, and have a next one all the same.
    func writeRequests(_ page: QueryPage, to json: inout JSONText, now: Tick) {
        let bound = interests.bound
        let filter = RequestFilter(page, handlers)
        var next = page.after.flatMap { Int32($0) }.map { max(0, Int($0)) + 1 } ?? 0
        if filter.isEmpty { next = bound }
        json.member("requests") { json in
            json.list { json in
                var room = page.limit ?? WireLimits.queryEntries
                let end = json.bytes.count + limits.answerBytes
                let last = min(bound, next.addingReportingOverflow(limits.examinedRequests).partialValue)
                while next < last, room > 0, json.bytes.count < end {
                    defer { next += 1 }
                    guard let interest = interests.handle(at: next), isListed(interest, filter) else { continue }
                    room -= 1
                    writeRequest(interest, to: &json, now: now)
                }
            }
        }
        // `after` is the last record that was examined.
        if next < bound { json.member("requests-next", String(next - 1)) }
    }

    /// Requests that a page of the administrator lists. A handler is one of its own.
    private struct RequestFilter {
        /// The handler; nil for any.
        let handler: Handle<HandlerEntry>?
        /// Handlers below a name; nil for any.
        let subtree: HandlerPattern?
        let state: RequestState?
        /// Whether there is no such handler.
        let isEmpty: Bool

        init(_ page: QueryPage, _ handlers: HandlerRegistry) {
            state = page.state
            switch page.handler {
            case .handler(let id):
                handler = handlers.number(of: HandlerKey(PrincipalTable.administrator, id))
                subtree = nil
                isEmpty = handler == nil
            case .subtree, nil:
                handler = nil
                subtree = page.handler
                isEmpty = false
            }
        }
    }

    private func isListed(_ number: Handle<Interest>, _ filter: RequestFilter) -> Bool {
        guard interests[number].isListed, !isDoomed(number) else { return false }
        let handler = interests[number].handler
        if let only = filter.handler, only != handler { return false }
        if let subtree = filter.subtree {
            guard handlers[handler].principal == PrincipalTable.administrator, subtree.matches(handlers[handler].id)
            else { return false }
        }
        return filter.state.map { $0 == state(of: number) } ?? true
    }

    /// - Parameter principal: the principal to which the request is listed.
    func writeRequest(
        _ interest: Handle<Interest>, for principal: Handle<Principal> = PrincipalTable.administrator,
        to json: inout JSONText, now: Tick
    ) {
        json.object { json in
            let record = interests[interest]
            json.member("handler", handlers[record.handler].id.description)
            writePrincipal(of: record.handler, for: principal, to: &json)
            json.member("request", record.request.description)
            json.member("state", state(of: interest).rawValue)
            json.member("class", record.priority.name)
            json.member("age-ms", now.milliseconds(since: record.askedAt))
            if record.phase == .open {
                let leaf = leaf(ofOpen: interest)
                json.member("url", flights[leaf].url.redacted)
                json.member("attempts", Int(flights[leaf].attempts))
                if case .running(let worker) = flights[leaf].phase {
                    json.member("worker", workers[worker].pid)
                    json.member("received", workers[worker].leases[attempt(of: leaf)]?.receivedBytes ?? 0)
                }
            } else {
                writeEnd(of: interest, to: &json)
                if let number = record.outcome, let response = outcomes[number].response {
                    json.member("received", response.length)
                }
            }
        }
    }

    /// Writes URL, attempts, status and code of a request that is not open, as far as they are known.
    func writeEnd(of interest: Handle<Interest>, to json: inout JSONText) {
        guard let end = end(of: interest) else {
            if let fetch = durables.entering(interest)?.fetch { writeURL(fetch.url, to: &json) }
            return
        }
        if let url = end.url { writeURL(url, to: &json) }
        json.member("attempts", end.attempts)
        if let status = end.status { json.member("status", status) }
        if let failure = end.failure { json.member("code", failure.rawValue) }
    }

    /// The outcome of a request, in memory or on disk; nil without one.
    func end(of interest: Handle<Interest>) -> DurableSummary? {
        guard let number = interests[interest].outcome else { return durables.summary(of: interest) }
        let outcome = outcomes[number]
        return DurableSummary(
            failure: outcome.failure, status: outcome.response?.status, attempts: outcome.attempts,
            url: outcome.response?.url ?? outcome.url)
    }

    private func writeURL(_ url: String, to json: inout JSONText) {
        if let url = try? FetchURL(url) { json.member("url", url.redacted) }
    }

    /// State of a request that has a record.
    func state(of interest: Handle<Interest>) -> RequestState {
        switch interests[interest].phase {
        case .entering, .recording: return .storing
        case .held, .resting: return .held
        case .delivering: return .delivering
        case .open:
            switch flights[leaf(ofOpen: interest)].phase {
            case .asking: return .asking
            case .queued, .claiming: return .queued
            case .running, .ended: return .running
            case .backingOff: return .backingOff
            case .following: return .following
            }
        }
    }
}
