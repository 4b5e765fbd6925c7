extension HTTPRequest {
    /// Whether the client's own fields ask for a part, for a condition or for a coding, so that the answer is for this
    /// request alone: Range, Accept-Encoding and all that begin with `If-`.
    public var choosesItsAnswer: Bool {
        fields.contains { field in
            field.isNamed("range") || field.isNamed("accept-encoding")
                || field.name.prefix(3).map(\.lowercased).elementsEqual("if-".utf8)
        }
    }
}

extension HeaderFields {
    /// Whether a response with this status can answer a request with these fields: a 304 needs a condition (RFC 9110,
    /// section 15.4.5), a 206 a range (section 15.3.7).
    public func allow(status: Int) -> Bool {
        switch status {
        case 206: contains("range")
        case 304: contains("if-none-match") || contains("if-modified-since")
        default: true
        }
    }
}
