internal import EarshotWire

/// Response of the server, with the fields that each response has.
struct WebResponse: Equatable {
    let status: Int
    let contentType: String
    var body: [UInt8]
    /// Further header lines.
    var fields: [(name: String, value: String)]
    /// Code of a failure or an error of the bus, which precedes the text.
    var errorCode: String?

    init(_ status: Int, _ type: String, _ body: [UInt8], fields: [(name: String, value: String)] = []) {
        self.status = status
        self.contentType = type
        self.body = body
        self.fields = fields
    }

    /// A line of text.
    init(_ status: Int, text: String, fields: [(name: String, value: String)] = []) {
        self.init(status, "text/plain; charset=utf-8", Array((text + "\n").utf8), fields: fields)
    }

    /// A JSON object.
    static func json(_ status: Int, _ members: (inout JSONText) -> Void) -> WebResponse {
        var json = JSONText()
        json.object(members)
        return WebResponse(status, "application/json", json.bytes)
    }

    /// Problem details: RFC 9457.
    static func problemDetails(
        _ status: Int, _ detail: String, code: String? = nil, fields: [(name: String, value: String)] = []
    ) -> WebResponse {
        var json = JSONText()
        json.object { json in
            json.member("status", status)
            json.member("title", reasonPhrase(status))
            json.member("detail", detail)
            if let code { json.member("code", code) }
        }
        return WebResponse(status, "application/problem+json", json.bytes, fields: fields)
    }

    /// The problem that a line of text describes.
    var asProblemDetails: WebResponse {
        guard status >= 400, contentType != "application/problem+json" else { return self }
        let text = String(decoding: body.dropLast(), as: UTF8.self)
        return .problemDetails(
            status, errorCode.map { String(text.dropFirst($0.count + 2)) } ?? text, code: errorCode, fields: fields)
    }

    static func == (left: WebResponse, right: WebResponse) -> Bool {
        left.status == right.status && left.contentType == right.contentType && left.body == right.body
            && left.fields.elementsEqual(right.fields, by: ==)
    }

    /// Fields that restrict a page to this server, and keep other sites from using it.
    private static let commonFields = """
        Cache-Control: no-store\r
        Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
        img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r
        Cross-Origin-Opener-Policy: same-origin\r
        Cross-Origin-Resource-Policy: same-origin\r
        Referrer-Policy: no-referrer\r
        X-Content-Type-Options: nosniff\r

        """

    /// Returns the bytes of the response.
    ///
    /// - Parameters:
    ///   - isHead: whether the request was HEAD, so that the body is left out.
    ///   - keepsAlive: whether the connection stays open.
    func encoded(isHead: Bool, keepsAlive: Bool) -> [UInt8] {
        let length = status == 204 ? [] : [("Content-Length", "\(body.count)")]
        let head = Self.head(status, contentType, fields + length, keepsAlive: keepsAlive)
        return isHead ? head : head + body
    }

    /// Head of a stream of server-sent events, which the end of the connection ends. Reverse proxies such as nginx pass
    /// on each event at once.
    static func eventStreamHead(_ fields: [(name: String, value: String)]) -> [UInt8] {
        head(200, "text/event-stream", fields + [("X-Accel-Buffering", "no")], keepsAlive: false)
    }

    static func head(
        _ status: Int, _ type: String, _ fields: [(name: String, value: String)], keepsAlive: Bool
    ) -> [UInt8] {
        var text = "HTTP/1.1 \(status) \(reasonPhrase(status))\r\nContent-Type: \(type)\r\n"
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        text += commonFields + "Connection: \(keepsAlive ? "keep-alive" : "close")\r\n\r\n"
        return Array(text.utf8)
    }

    static func reasonPhrase(_ status: Int) -> String { reasonPhrases[status] ?? "Status" }

    private static let reasonPhrases = [
        200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
        205: "Reset Content", 206: "Partial Content", 300: "Multiple Choices", 301: "Moved Permanently", 302: "Found",
        303: "See Other", 304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request",
        401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
        406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict",
        410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large", 414: "URI Too Long",
        415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
        421: "Misdirected Request", 422: "Unprocessable Content", 425: "Too Early", 426: "Upgrade Required",
        428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
        451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
        503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported", 508: "Loop Detected",
    ]
}
