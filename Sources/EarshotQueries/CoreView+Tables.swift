internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire

/// Tables in answers to QUERY, in pages, so that an answer is short however long its table.
extension CoreView {
    /// Writes one page: entries until there are no more or the page is full. If there is a next page, the member
    /// `NAME-next` contains its `after`.
    ///
    /// - Parameters:
    ///   - entries: entries after those of earlier pages, in order.
    ///   - cursor: name of the last entry of a full page, after which the next page continues.
    private func writePage<Entries: Sequence>(
        _ name: String, _ page: QueryPage, of entries: Entries, to json: inout JSONText,
        cursor: (Entries.Element) -> String, write: (Entries.Element, inout JSONText) -> Void
    ) {
        var rest = entries.makeIterator()
        var last: Entries.Element?
        json.member(name) { json in
            json.list { json in
                let end = json.bytes.count + records.limits.maximumQueryPageBytes
                for _ in 0..<(page.limit ?? WireLimits.queryEntries) {
                    guard json.bytes.count < end, let entry = rest.next() else { break }
                    write(entry, &json)
                    last = entry
                }
            }
        }
        if let last, rest.next() != nil { json.member(name + "-next", cursor(last)) }
    }

    /// Records after the one whose number a page names.
    private func records<Record>(of slab: Slab<Record>, after page: QueryPage) -> some Sequence<Handle<Record>> {
        let start = page.cursor.flatMap { Int32($0) }.map { max(0, Int($0) + 1) } ?? 0
        return (start..<max(start, slab.bound)).lazy.compactMap { slab.handle(atIndex: $0) }
    }

    /// Writes handlers in the byte order of their names: those of a principal, and for the administrator those of all
    /// principals, its own first. A filter selects among its own.
    func writeHandlers(_ page: QueryPage, for principal: Handle<Principal>, seesAll: Bool, to json: inout JSONText) {
        let isOfAll = seesAll && page.handler == nil
        let after =
            page.cursor.map { HandlerCursor($0, for: principal) } ?? HandlerCursor(principal: principal, name: "")
        let order = records.handlers.handlersInNameOrder
        let start = order.firstPosition { handler in
            let other = records.handlers[handler].principal.slabIndex
            guard other == after.principal else { return other < after.principal }
            let name = records.handlers[handler].id.description
            return name <= after.name || name < page.handler?.description ?? ""
        }
        let entries = sequence(state: start) { position -> Handle<HandlerEntry>? in
            guard let handler = order[position], isOfAll || records.handlers[handler].principal == principal,
                page.handler?.matches(records.handlers[handler].id) ?? true
            else { return nil }
            position = order.position(after: position)
            return handler
        }
        writePage(
            "handlers", page, of: entries, to: &json,
            cursor: {
                HandlerCursor(principal: records.handlers[$0].principal, name: records.handlers[$0].id.description)
                    .cursorText(for: principal)
            },
            write: { handler, json in
                json.object { json in
                    json.member("handler", records.handlers[handler].id.description)
                    writePrincipal(of: handler, for: principal, to: &json)
                    json.member("subscribers", records.subscribers(of: handler).count)
                    json.member("requests") { writeRequestCounts(of: records.handlers[handler].requestCounts, to: &$0) }
                }
            })
    }

    /// Writes the principal of a handler that belongs to another one.
    func writePrincipal(of handler: Handle<HandlerEntry>, for principal: Handle<Principal>, to json: inout JSONText) {
        guard records.handlers[handler].principal != principal,
            let name = records.principals.name(of: records.handlers[handler].principal)
        else { return }
        json.member("principal", name.description)
    }

    /// Writes origins by record number, so that an origin that exists during all pages is in exactly one of them.
    func writeOrigins(_ page: QueryPage, to json: inout JSONText) {
        let limit = (page.limit ?? WireLimits.queryEntries) + 1
        let listed = Array(records(of: records.originGovernor.origins, after: page).prefix(limit))
        let scopes = self.scopesByOrigin(of: listed)
        writePage(
            "origins", page, of: listed, to: &json, cursor: { $0.description },
            write: { origin, json in
                let scopes = scopes[origin, default: []]
                json.object { json in
                    json.member("origin", records.originGovernor.origins[origin].origin.description)
                    let pool = records.originGovernor.origins[origin].workerPool
                    if let name = records.principals.name(of: records.workerPools[pool].principal) {
                        json.member("principal", name.description)
                    }
                    json.member("running", Int(records.originGovernor.origins[origin].runningTransferCount))
                    json.member("limit", Int(records.originGovernor.origins[origin].transferLimit))
                    json.member("spacing-ms", Int(records.originGovernor.origins[origin].spacingMilliseconds))
                    json.member("flights", scopes.reduce(0) { $0 + $1.flightCount })
                    let waits = scopes.compactMap { $0.coolDown?.pauseEnd?.milliseconds(since: now) }
                    if let wait = waits.max() { json.member("cooling-ms", wait) }
                }
            })
    }

    /// Scopes of the listed origins, by origin. O(scopes) if one of the origins has requests with credentials.
    private func scopesByOrigin(of listed: [Handle<OriginEntry>]) -> [Handle<OriginEntry>: [OriginScope]] {
        let (origins, scopes) = (records.originGovernor.origins, records.originGovernor.scopes)
        var found: [Handle<OriginEntry>: [OriginScope]] = [:]
        var hasOthers = false
        for origin in listed {
            let shared = origins[origin].sharedScope
            found[origin] = shared.map { [scopes[$0]] } ?? []
            if origins[origin].scopeCount > (shared == nil ? 0 : 1) { hasOthers = true }
        }
        guard hasOthers else { return found }
        for place in 0..<scopes.bound {
            guard let scope = scopes.handle(atIndex: place), !scopes[scope].trustScope.isCredentialFree else {
                continue
            }
            found[scopes[scope].origin]?.append(scopes[scope])
        }
        return found
    }

    /// Writes workers by record number, and the failing children of the supervisor.
    func writeWorkers(_ page: QueryPage, to json: inout JSONText) {
        writePage(
            "workers", page, of: records(of: records.workers.sessionRecords, after: page), to: &json,
            cursor: { $0.description },
            write: { worker, json in
                json.object { json in
                    json.member("pid", records.workers[worker].workerProcessID)
                    json.member("phase", records.workers[worker].phase.rawValue)
                    if let name = records.principals.name(of: records.workers[worker].principal) {
                        json.member("principal", name.description)
                    }
                    json.member("schemes") { json in
                        let schemes = records.workers[worker].pools.flatMap {
                            records.workerPools[$0].scheme.map { [$0] } ?? ["http", "https"]
                        }
                        json.array(schemes) { $0.value($1) }
                    }
                    json.member("http2", records.workers[worker].speaksHTTP2)
                    if !records.workers[worker].isUserProvided {
                        json.member("sandbox", records.workers[worker].effectiveSandboxParts?.description ?? "off")
                    }
                    json.member("slots", records.workers[worker].usableSlots)
                    json.member(
                        "running", records.workers[worker].leases.count - records.workers[worker].cancellingLeaseCount)
                    json.member("cancelling", records.workers[worker].cancellingLeaseCount)
                }
            })
        json.member("failing") { json in
            json.array(childFailures) { json, failure in
                json.object { json in
                    json.member("role", failure.childRole)
                    json.member("deaths", failure.consecutiveDeathCount)
                    json.member("last-end", failure.lastExitDescription)
                    json.member("since", failure.firstDeathAt)
                }
            }
        }
    }

    /// Writes settings in the order of their table, then the rules.
    func writeSettings(_ page: QueryPage, to json: inout JSONText) {
        let rows = records.settings.rows
        let start = page.cursor.flatMap { Int($0) }.map { min(max(0, $0), rows.count) } ?? 0
        writePage(
            "settings", page, of: zip(rows[start...], (start + 1)...), to: &json, cursor: { String($0.1) },
            write: { row, json in
                json.object { json in
                    json.member("name", row.0.name)
                    if let pattern = row.0.pattern { json.member("pattern", pattern) }
                    json.member("value", row.0.value)
                    json.member("source", row.0.source)
                }
            })
    }
}

/// End of a page of handlers: the name of its last one, and the principal of that.
///
/// The text is a handler's name. For another principal it is `/NUMBER/NAME`, which is no handler's name.
struct HandlerCursor: Equatable {
    /// Number of the principal.
    let principal: Int
    let name: String

    init(principal: Handle<Principal>, name: String) {
        self.init(principal: principal.slabIndex, name: name)
    }

    private init(principal: Int, name: String) {
        self.principal = principal
        self.name = name
    }

    /// Parses the `after` of a page. Only the administrator's pages reach other principals.
    init(_ text: String, for principal: Handle<Principal>) {
        let words = text.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        guard principal == PrincipalTable.administrator, words.count == 3, words[0].isEmpty,
            let other = Int32(words[1]), other > principal.recordNumber
        else {
            self.init(principal: principal, name: text)
            return
        }
        self.init(principal: Int(other), name: String(words[2]))
    }

    /// The `after` of the next page of this principal.
    func cursorText(for principal: Handle<Principal>) -> String {
        self.principal == principal.slabIndex ? name : "/\(self.principal)/\(name)"
    }
}

/// The cookies of a handler in answers to QUERY.
extension CoreView {
    /// Writes the cookies of a handler's root in the order of their creation. A page ends as that of a table. Cookies
    /// that are not UTF-8 cannot be written.
    func writeCookies(of key: HandlerKey, _ page: QueryPage, to json: inout JSONText) {
        let root = HandlerRegistry.rootText(key.id, of: records.principals.name(of: key.principal))
        let last = page.cursor.flatMap { UInt64($0) } ?? 0
        let cookies = (records.cookieJars.jar(of: root)?.cookies(now: records.calendarSeconds) ?? [])
            .filter { $0.created > last && $0.isUTF8 }.sorted { $0.created < $1.created }
        var written = 0
        json.member("cookies") { json in
            json.list { json in
                let end = json.bytes.count + records.limits.maximumQueryPageBytes
                for cookie in cookies.prefix(page.limit ?? WireLimits.queryEntries) where json.bytes.count < end {
                    writeCookie(cookie, to: &json)
                    written += 1
                }
            }
        }
        if written < cookies.count, written > 0 { json.member("cookies-next", String(cookies[written - 1].created)) }
    }

    private func writeCookie(_ cookie: Cookie, to json: inout JSONText) {
        json.object { json in
            json.member("domain", cookie.domain)
            json.member("subdomains", !cookie.isHostOnly)
            json.member("path", String(decoding: cookie.path, as: UTF8.self))
            json.member("secure", cookie.isSecure)
            json.member("http-only", cookie.isHTTPOnly)
            if let expires = cookie.expires { json.member("expires", Int(expires)) }
            json.member("name", String(decoding: cookie.name, as: UTF8.self))
            json.member("value", String(decoding: cookie.value, as: UTF8.self))
        }
    }
}
