extension HTTPRequest {
    /// Whether the client's own fields select a range, condition or coding, so that the response suits only this
    /// request: Range, Accept-Encoding and all fields beginning with `If-`.
    public var choosesItsAnswer: Bool {
        fields.contains { field in
            field.isNamed("range") || field.isNamed("accept-encoding")
                || field.name.prefix(3).map(\.lowercased).elementsEqual("if-".utf8)
        }
    }
}

extension HeaderFields {
    /// Returns whether a response with this status is valid for a request with these fields. A 304 requires a condition
    /// (RFC 9110, section 15.4.5), a 206 a range (section 15.3.7).
    public func allow(status: Int) -> Bool {
        switch status {
        case 206: contains("range")
        case 304: contains("if-none-match") || contains("if-modified-since")
        default: true
        }
    }
}
