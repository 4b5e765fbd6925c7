internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire

/// The list of requests in answers to QUERY, for the administrator. `CoreView+OwnRequests` has that of others.
extension CoreView {
    /// Writes requests of all principals for the administrator, by record number, so that a request that exists during
    /// all pages is in exactly one of them.
    ///
    /// A page examines at most `maximumExaminedRequestsPerPage` records. So it may be empty, and have a next one all
    /// the same.
    func writeRequests(_ page: QueryPage, to json: inout JSONText) {
        let bound = records.requests.indexBound
        let filter = RequestFilter(page, records.handlers)
        var next = page.cursor.flatMap { Int32($0) }.map { max(0, Int($0)) + 1 } ?? 0
        if filter.isEmpty { next = bound }
        json.member("requests") { json in
            json.list { json in
                var room = page.limit ?? WireLimits.queryEntries
                let end = json.bytes.count + records.limits.maximumQueryPageBytes
                let last = min(
                    bound, next.addingReportingOverflow(records.limits.maximumExaminedRequestsPerPage).partialValue)
                while next < last, room > 0, json.bytes.count < end {
                    defer { next += 1 }
                    guard let interest = records.requests.interest(atIndex: next), isListed(interest, by: filter) else {
                        continue
                    }
                    room -= 1
                    writeRequest(interest, to: &json)
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
        let handlerPattern: HandlerPattern?
        let state: RequestState?
        /// Whether there is no such handler.
        let isEmpty: Bool

        init(_ page: QueryPage, _ handlers: HandlerRegistry) {
            state = page.state
            switch page.handler {
            case .handler(let id):
                handler = handlers.handle(of: HandlerKey(PrincipalTable.administrator, id))
                handlerPattern = nil
                isEmpty = handler == nil
            case .subtree, nil:
                handler = nil
                handlerPattern = page.handler
                isEmpty = false
            }
        }
    }

    private func isListed(_ number: Handle<Interest>, by filter: RequestFilter) -> Bool {
        guard records.requests[number].isRequestIDTaken, !records.isAwaitingRemoval(number) else { return false }
        let handler = records.requests[number].handler
        if let only = filter.handler, only != handler { return false }
        if let subtree = filter.handlerPattern {
            guard records.handlers[handler].principal == PrincipalTable.administrator,
                subtree.matches(records.handlers[handler].id)
            else { return false }
        }
        return filter.state.map { $0 == state(of: number) } ?? true
    }

    /// - Parameter principal: the principal to which the request is listed.
    func writeRequest(
        _ interest: Handle<Interest>, for principal: Handle<Principal> = PrincipalTable.administrator,
        to json: inout JSONText
    ) {
        json.object { json in
            let record = records.requests[interest]
            json.member("handler", records.handlers[record.handler].id.description)
            writePrincipal(of: record.handler, for: principal, to: &json)
            json.member("request", record.request.description)
            json.member("state", state(of: interest).rawValue)
            json.member("class", record.priority.name)
            json.member("age-ms", now.milliseconds(since: record.requestedAt))
            if record.phase == .open {
                let leaf = records.lastRedirectedFlight(ofOpen: interest)
                json.member("url", records.flights[leaf].url.redacted)
                json.member("attempts", Int(records.flights[leaf].assignedAttemptCount))
                if case .running(let worker) = records.flights[leaf].phase {
                    json.member("worker", records.workers[worker].workerProcessID)
                    let lease = records.workers[worker].leases[records.currentAttempt(of: leaf)]
                    json.member("received", lease?.receivedBytes ?? 0)
                }
            } else {
                writeRequestEnd(of: interest, to: &json)
                if let number = record.outcome, let response = records.outcomes[number].response {
                    json.member("received", response.bodyLength)
                }
            }
        }
    }

    /// Writes URL, attempts, status and code of a request that is not open, as far as they are known.
    func writeRequestEnd(of interest: Handle<Interest>, to json: inout JSONText) {
        guard let end = requestEnd(of: interest) else {
            if let fetch = records.durables.unacceptedRequest(interest)?.fetch { writeURL(fetch.url, to: &json) }
            return
        }
        if let url = end.url { writeURL(url, to: &json) }
        json.member("attempts", end.attempts)
        if let status = end.status { json.member("status", status) }
        if let failure = end.failure { json.member("code", failure.rawValue) }
    }

    /// End of a request, from its outcome in memory or its result on disk.
    struct End {
        var failure: FailureCode?
        var status: Int?
        var attempts: Int
        var url: String?
    }

    /// The end of a request; nil without one.
    func requestEnd(of interest: Handle<Interest>) -> End? {
        guard let number = records.requests[interest].outcome else {
            return records.durables.storedResultSummary(of: interest).map {
                End(failure: $0.failure, status: $0.status, attempts: $0.attempts, url: $0.url)
            }
        }
        let outcome = records.outcomes[number]
        return End(
            failure: outcome.failure, status: outcome.response?.status, attempts: outcome.attempts,
            url: outcome.response?.url ?? outcome.url)
    }

    private func writeURL(_ url: String, to json: inout JSONText) {
        if let url = try? FetchURL(url) { json.member("url", url.redacted) }
    }

    /// State of a request that has a record.
    func state(of interest: Handle<Interest>) -> RequestState {
        switch records.requests[interest].phase {
        case .awaitingDurableAcceptance, .writingOutcome: return .writingToDisk
        case .awaitingSubscriber, .outcomeOnlyOnDisk: return .awaitingSubscriber
        case .delivering: return .delivering
        case .open:
            switch records.flights[records.lastRedirectedFlight(ofOpen: interest)].phase {
            case .lookingUp: return .lookingUpCache
            case .queued, .claiming: return .queued
            case .running, .ended: return .running
            case .backingOff: return .backingOff
            case .following: return .followingRedirect
            }
        }
    }
}
