internal import EarshotHTTP
public import EarshotWire

/// End of a request, as the broker reports it to its supervisor for the program of `on-complete`.
///
/// Its line has handler, ID, status, failure code, length, SHA-256 and URL, separated by spaces; `-` for an absent one.
/// None of them contains a space. A principal and `//`, which no handler's name contains, precede the handler.
public struct EndedRequest: Equatable, Sendable {
    /// Verb at the start of its line.
    public static let lineVerb = "ended"

    /// Principal of the handler; nil for the administrator.
    public var principal: PrincipalName?
    /// Handler of the request.
    public var handler: HandlerID
    /// ID of the request.
    public var request: RequestID
    /// HTTP status; nil without a response.
    public var status: Int?
    /// Failure code; nil for success.
    public var failure: String?
    /// URL that answered; nil without a response.
    public var url: String?
    /// Length of the body in bytes; nil without a response.
    public var bodyLength: Int?
    /// SHA-256 of the body, as 64 hexadecimal digits; nil without a body.
    public var sha256: String?

    /// Creates the end of a request without a response.
    public init(handler: HandlerID, request: RequestID) {
        self.handler = handler
        self.request = request
    }

    /// Parses a line; nil for one of another form.
    public init?(line: String) {
        let words = line.split(separator: " ").map { String($0) }
        guard words.count == 8, words[0] == Self.lineVerb, let request = RequestID(words[2]) else { return nil }
        let mark = words[1].firstRange(of: "//")
        let principal = mark.map { PrincipalName(String(words[1][..<$0.lowerBound])) }
        guard principal != .some(nil),
            let handler = HandlerID(String(words[1][(mark?.upperBound ?? words[1].startIndex)...]))
        else { return nil }
        let values = words.map { $0 == "-" ? nil : $0 }
        self.init(handler: handler, request: request)
        self.principal = principal ?? nil
        status = values[3].flatMap { Int($0) }
        failure = values[4]
        bodyLength = values[5].flatMap { Int($0) }
        sha256 = values[6]
        url = values[7]
    }

    /// The report as a line, without its end.
    public var line: String {
        let values = [status.map { String($0) }, failure, bodyLength.map { String($0) }, sha256, url]
        let name = (principal.map { "\($0)//" } ?? "") + handler.description
        return ([Self.lineVerb, name, request.description] + values.map { $0 ?? "-" }).joined(separator: " ")
    }
}
