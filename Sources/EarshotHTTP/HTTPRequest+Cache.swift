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
