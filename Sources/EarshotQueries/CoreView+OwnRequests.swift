internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// The list of requests for a principal other than the administrator.
///
/// Record numbers would reveal how many requests others have. So its pages follow the names of handlers and IDs.
extension CoreView {
    /// Writes the requests of a principal by the names of their handlers, then by their IDs.
    ///
    /// A page examines the handlers of at most `maximumExaminedRequestsPerPage` requests. So it may be empty, and have
    /// a next one all the same. O(requests of the examined handlers).
    func writeRequests(_ page: QueryPage, of principal: Handle<Principal>, to json: inout JSONText) {
        let after = page.cursor.map { RequestCursor($0) }
        let order = records.handlers.handlersInNameOrder
        var position = records.handlers.namePosition(
            of: max(after?.handler ?? "", page.handler?.description ?? ""), principal)
        var cursor: RequestCursor?
        json.member("requests") { json in
            json.list { json in
                let end = json.bytes.count + records.limits.maximumQueryPageBytes
                var room = page.limit ?? WireLimits.queryEntries
                var examined = 0
                while let handler = order[position], records.handlers[handler].principal == principal,
                    page.handler?.matches(records.handlers[handler].id) ?? true
                {
                    let name = records.handlers[handler].id.description
                    // One more than the page holds shows whether there is a next page.
                    let found = requests(of: handler, after: after?.request(in: name), page.state, atMost: room + 1)
                    for interest in found {
                        guard room > 0, json.bytes.count < end else { return }
                        room -= 1
                        writeRequest(interest, for: principal, to: &json)
                        cursor = RequestCursor(handler: name, request: records.requests[interest].request.description)
                    }
                    examined += Int(records.handlers[handler].interests.count)
                    position = order.position(after: position)
                    guard examined < records.limits.maximumExaminedRequestsPerPage else {
                        cursor = RequestCursor(handler: name, request: nil)
                        return
                    }
                }
                cursor = nil
            }
        }
        if let cursor { json.member("requests-next", cursor.cursorText) }
    }

    /// Requests of a handler in the byte order of their IDs, at most `limit`.
    private func requests(
        of handler: Handle<HandlerEntry>, after: RequestCursor.Start?, _ state: RequestState?, atMost limit: Int
    ) -> [Handle<Interest>] {
        var found = Heap<ListedRequest>()
        for interest in records.handlers.requests(of: handler) where !records.isAwaitingRemoval(interest) {
            let listed = ListedRequest(id: records.requests[interest].request.description, interest: interest)
            if let after, !after.admits(listed.id) { continue }
            if let state, state != self.state(of: interest) { continue }
            if found.count < limit {
                found.insert(listed)
            } else if let last = found.max, listed < last {
                found.replaceMax(with: listed)
            }
        }
        return found.unordered.sorted().map(\.interest)
    }

    private struct ListedRequest: Comparable {
        let id: String
        let interest: Handle<Interest>

        static func < (left: ListedRequest, right: ListedRequest) -> Bool { left.id < right.id }
    }
}

/// End of a page of requests, `HANDLER//ID`, or `HANDLER//` after all of a handler. No handler's name contains `//`.
struct RequestCursor: Equatable {
    /// Place in a handler at which a page starts.
    enum Start: Equatable {
        case afterAll
        case after(String)

        func admits(_ id: String) -> Bool {
            switch self {
            case .afterAll: false
            case .after(let last): id > last
            }
        }
    }

    let handler: String
    /// Nil after all requests of the handler.
    let request: String?

    init(handler: String, request: String?) {
        self.handler = handler
        self.request = request
    }

    /// Parses an `after`. A text of another form is the name of a handler, whose requests precede the page.
    init(_ text: String) {
        let bytes = Array(text.utf8)
        let slash = UInt8(ascii: "/")
        guard let end = bytes.indices.first(where: { bytes[$0...].starts(with: [slash, slash]) }) else {
            self.init(handler: text, request: nil)
            return
        }
        let request = String(decoding: bytes[(end + 2)...], as: UTF8.self)
        self.init(handler: String(decoding: bytes[..<end], as: UTF8.self), request: request.isEmpty ? nil : request)
    }

    /// Place at which the page starts in a handler; nil for its first request.
    func request(in handler: String) -> Start? {
        guard handler == self.handler else { return nil }
        return request.map { .after($0) } ?? .afterAll
    }

    /// The `after` of the next page.
    var cursorText: String { "\(handler)//\(request ?? "")" }
}
