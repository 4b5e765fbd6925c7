/// Selects the part of a table in the reply to a query: a page of the entries that pass a filter.
public struct QueryPage: Equatable, Sendable {
    /// Start of the part: the `NAME-next` of the preceding reply; nil for the beginning.
    public var cursor: String?
    /// Maximum number of entries, 1 to `WireLimits.queryEntries`; nil for that many.
    public var limit: Int?
    /// Handlers whose requests are listed; nil for all.
    public var handler: HandlerPattern?
    /// State of the requests that are listed; nil for all.
    public var state: RequestState?

    public init(cursor: String? = nil, limit: Int? = nil, handler: HandlerPattern? = nil, state: RequestState? = nil) {
        self.cursor = cursor
        self.limit = limit
        self.handler = handler
        self.state = state
    }

    init(_ reader: HeadReader) throws(WireError) {
        for (name, value) in reader.fields {
            switch name {
            case "after":
                guard (1...WireLimits.cursorBytes).contains(value.bytes.count),
                    value.bytes.allSatisfy({ (0x21...0x7e).contains($0) })
                else {
                    throw WireError(.badMessage, "after must be the NAME-next of an earlier answer")
                }
                cursor = value.string
            case "limit": limit = try HeadReader.parseInteger(value, in: 1...WireLimits.queryEntries, named: "limit")
            case "handler":
                guard let pattern = HandlerPattern(value.string) else {
                    throw WireError(.badMessage, "handler must be a handler, or NAME/ for all handlers below NAME")
                }
                handler = pattern
            case "state":
                guard let named = RequestState(rawValue: value.string) else {
                    let names = RequestState.allCases.map(\.rawValue).joined(separator: ", ")
                    throw WireError(.badMessage, "state must be one of \(names)")
                }
                state = named
            default: break
            }
        }
    }

    func write(to writer: inout HeadWriter) {
        writer.writeField("after", cursor)
        writer.writeField("limit", limit.map { String($0) })
        writer.writeField("handler", handler?.description)
        writer.writeField("state", state?.rawValue)
    }
}

/// State of a request in answers to QUERY.
public enum RequestState: String, CaseIterable, Sendable {
    /// The broker writes the request, or its result, to disk.
    case writingToDisk = "storing"
    /// Has ended, and its handler has no subscriber.
    case awaitingSubscriber = "held"
    /// Has ended, and its terminal waits for a window or for an acknowledgement.
    case delivering
    /// The broker looks it up in the cache.
    case lookingUpCache = "looking-up"
    case queued
    case running
    /// Waits for the next attempt.
    case backingOff = "backing-off"
    /// Follows a redirect.
    case followingRedirect = "following"
}
