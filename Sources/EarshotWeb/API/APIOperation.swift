internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire

/// Operation of the API. The table decides which requests are accepted; `protocols/openapi.json` describes the same
/// operations.
struct APIOperation {
    enum Name: String, CaseIterable {
        case open, close, fetch, submit, results, events, body, remove, priority, why, list, status
        case document = "openapi"
    }

    let name: Name
    let method: String
    let path: String
    /// Members of the JSON object, or names in the query.
    var requiredMembers: [String] = []
    var optionalMembers: [String] = []

    /// A POST changes the bus or a session, and a form of another site cannot send it.
    static let allOperations: [APIOperation] = [
        APIOperation(name: .open, method: "POST", path: "/v1/sessions", optionalMembers: ["subscribe"]),
        APIOperation(name: .close, method: "POST", path: "/v1/sessions/close", requiredMembers: ["session"]),
        APIOperation(
            name: .fetch, method: "POST", path: "/v1/fetch", requiredMembers: ["url"],
            optionalMembers: optionalRequestMembers),
        APIOperation(
            name: .submit, method: "POST", path: "/v1/requests", requiredMembers: ["requests"],
            optionalMembers: ["session"]),
        APIOperation(
            name: .results, method: "POST", path: "/v1/results", requiredMembers: ["session"],
            optionalMembers: ["acknowledge", "wait", "count"]),
        APIOperation(
            name: .remove, method: "POST", path: "/v1/requests/remove", requiredMembers: ["handler"],
            optionalMembers: ["session", "id"]),
        APIOperation(
            name: .priority, method: "POST", path: "/v1/requests/priority",
            requiredMembers: ["handler", "id", "priority"]),
        APIOperation(name: .events, method: "GET", path: "/v1/events", requiredMembers: ["session"]),
        APIOperation(name: .body, method: "GET", path: "/v1/body", requiredMembers: ["session", "sequence"]),
        APIOperation(name: .why, method: "GET", path: "/v1/why", requiredMembers: ["handler", "id"]),
        APIOperation(
            name: .list, method: "GET", path: "/v1/requests", optionalMembers: ["handler", "state", "after", "limit"]),
        APIOperation(name: .status, method: "GET", path: "/v1/status"),
        APIOperation(name: .document, method: "GET", path: "/v1/openapi.json"),
    ]

    /// Type of an option in JSON.
    enum OptionType {
        case text
        case number
        case flag
    }

    /// Options of FETCH that a client of the API may set. The others are about files, or about the door's own session.
    static let fetchOptions: [(name: String, kind: OptionType)] = [
        ("priority", .text), ("method", .text), ("coalesce", .flag), ("timeout", .number), ("deadline", .number),
        ("max-bytes", .number), ("limit-rate", .number), ("redirect", .text), ("cache", .text), ("retries", .number),
        ("digest", .text), ("decode", .flag), ("errors", .text), ("cookies", .flag), ("replace", .flag),
        ("warm", .flag), ("durable", .flag), ("wait-ms", .number),
    ]
    /// Optional members of a request.
    static let optionalRequestMembers = ["handler", "id", "fields", "body", "body-base64"] + fetchOptions.map(\.name)
}

/// Members of a JSON object, or of a query, that a client of the API sends.
struct APIInput {
    /// Reason why an input is refused.
    struct Refusal: Error {
        let detail: String
    }

    private let members: [String: JSONValue]

    /// - Throws: `Refusal` if a required member is missing, or one has another name.
    init(_ members: [JSONValue.Member], required: [String], optional: [String]) throws(Refusal) {
        self.members = Dictionary(members.map { ($0.name, $0.value) }) { first, _ in first }
        guard self.members.count == members.count else { throw Refusal(detail: "a member occurs twice") }
        for name in required where self.members[name] == nil { throw Refusal(detail: "\(name) is missing") }
        for member in members where !required.contains(member.name) && !optional.contains(member.name) {
            throw Refusal(detail: "there is no member or parameter \(member.name)")
        }
    }

    subscript(name: String) -> JSONValue? { members[name] }

    /// Returns a text in the form that `parse` reads; nil if it is absent.
    func parsedText<Value>(_ name: String, parse: (String) -> Value?) throws(Refusal) -> Value? {
        guard let member = members[name] else { return nil }
        guard case .string(let text) = member, let value = parse(text) else {
            throw Refusal(detail: "\(name) is invalid")
        }
        return value
    }

    func requiredText<Value>(_ name: String, parse: (String) -> Value?) throws(Refusal) -> Value {
        guard let value = try parsedText(name, parse: parse) else { throw Refusal(detail: "\(name) is missing") }
        return value
    }

    /// Returns an integer; nil if it is absent. One in a query is a text.
    func integerMember(_ name: String, in range: ClosedRange<Int>) throws(Refusal) -> Int? {
        guard let member = members[name] else { return nil }
        guard let number = member.scalarText.flatMap(Self.parseInteger), range.contains(number) else {
            throw Refusal(detail: "\(name) must be a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// The integer of a JSON number, such as `2.0`.
    private static func parseInteger(_ text: String) -> Int? { Int(text) ?? Double(text).flatMap { Int(exactly: $0) } }

    /// Returns the FETCH that the members describe.
    ///
    /// - Parameters:
    ///   - handler: Handler of a request that names none.
    ///   - id: ID of a request that has none.
    func makeFetch(handler: HandlerID, id: RequestID) throws(Refusal) -> Fetch {
        let handler = try parsedText("handler") { HandlerID($0) } ?? handler
        let id = try parsedText("id") { RequestID($0) } ?? id
        let url = try requiredText("url") { text in
            let isURL = text.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7f }
            return isURL && (1...WireLimits.urlBytes).contains(text.utf8.count) ? text : nil
        }
        var fetch = Fetch(handler: handler, request: id, url: url)
        for (name, kind) in APIOperation.fetchOptions {
            guard let value = members[name] else { continue }
            let text: String
            switch (kind, value) {
            case (.text, .string(let word)): text = word
            case (.number, .scalar(let word)) where Double(word) != nil:
                text = Self.parseInteger(word).map { "\($0)" } ?? word
            case (.flag, .scalar("true")): text = "yes"
            case (.flag, .scalar("false")): text = "no"
            default: throw Refusal(detail: "\(name) has a wrong type")
            }
            do throws(WireError) {
                try fetch.options.setOption(name, to: text)
            } catch {
                throw Refusal(detail: error.detail)
            }
        }
        if members["coalesce"] == nil { fetch.options.coalesces = ["GET", "HEAD"].contains(fetch.options.method) }
        fetch.httpFields = try headerFieldLines()
        switch (members["body"], members["body-base64"]) {
        case (nil, nil): break
        case (.string(let text)?, nil): fetch.body = Array(text.utf8)
        case (nil, .string(let text)?): fetch.body = Base64.decoded(text)
        default: throw Refusal(detail: "body and body-base64 are strings, and exclude each other")
        }
        guard members["body-base64"] == nil || fetch.body != nil else {
            throw Refusal(detail: "body-base64 is invalid")
        }
        if fetch.body?.isEmpty == true { fetch.body = nil }
        return fetch
    }

    private func headerFieldLines() throws(Refusal) -> [UInt8] {
        guard let value = members["fields"] else { return [] }
        guard case .object(let fields) = value else { throw Refusal(detail: "fields must be an object") }
        var lines: [[UInt8]] = []
        for field in fields {
            guard case .string(let text) = field.value, !field.name.isEmpty, field.name.utf8.allSatisfy(\.isTokenByte),
                text.utf8.allSatisfy({ !$0.isControl || $0.isBlank })
            else { throw Refusal(detail: "fields must have names and values of HTTP fields") }
            lines.append(Array("\(field.name): \(text)".utf8))
        }
        return Array(lines.joined(separator: [UInt8(ascii: "\n")]))
    }
}
