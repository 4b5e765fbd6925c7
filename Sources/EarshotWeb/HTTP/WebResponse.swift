/// Response of the server, with the fields that each response has.
struct WebResponse: Equatable {
    let status: Int
    let type: String
    var body: [UInt8]
    /// Further header lines.
    var fields: [(name: String, value: String)] = []

    init(_ status: Int, _ type: String, _ body: [UInt8]) {
        self.status = status
        self.type = type
        self.body = body
    }

    /// A line of text.
    init(_ status: Int, text: String) {
        self.init(status, "text/plain; charset=utf-8", Array((text + "\n").utf8))
    }

    static func == (left: WebResponse, right: WebResponse) -> Bool {
        left.status == right.status && left.type == right.type && left.body == right.body
            && left.fields.elementsEqual(right.fields, by: ==)
    }

    /// Fields that limit a page to this server, and other sites to no part of it.
    private static let common = """
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
        let head = Self.head(
            status, type, fields + [("Content-Length", "\(body.count)")], keepsAlive: keepsAlive)
        return isHead ? head : head + body
    }

    /// Head of a stream of server-sent events, which the end of the connection ends. Reverse proxies such as nginx pass on each
    /// event at once.
    static let eventStream = head(200, "text/event-stream", [("X-Accel-Buffering", "no")], keepsAlive: false)

    private static func head(
        _ status: Int, _ type: String, _ fields: [(name: String, value: String)], keepsAlive: Bool
    ) -> [UInt8] {
        var text = "HTTP/1.1 \(status) \(phrase(status))\r\nContent-Type: \(type)\r\n"
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        text += common + "Connection: \(keepsAlive ? "keep-alive" : "close")\r\n\r\n"
        return Array(text.utf8)
    }

    private static func phrase(_ status: Int) -> String {
        switch status {
        case 200: "OK"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 413: "Content Too Large"
        case 421: "Misdirected Request"
        case 431: "Request Header Fields Too Large"
        case 503: "Service Unavailable"
        case 505: "HTTP Version Not Supported"
        default: "Error"
        }
    }
}
