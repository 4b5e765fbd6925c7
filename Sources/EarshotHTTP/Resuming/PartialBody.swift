/// What is kept of a transfer that broke.
public struct PartialBody: Sendable {
    /// Bytes kept, from the first one on.
    public let keptBytes: Int64

    /// Bytes of the whole, if the server said so.
    public let totalBytes: Int64?

    /// That of the response whose body it is.
    public let validator: Validator

    /// Whether the bytes are those of the representation: no content coding was, or had to be, undone.
    public let isIdentity: Bool

    /// Takes what is known of the transfer.
    ///
    /// - Parameters:
    ///   - response: The fields of the response that began the body, a 200, or of the 206 that went on with it.
    ///   - totalBytes: Of the representation: the `Content-Length` of a 200, the total of a 206.
    ///   - now: Seconds since 1970, for the century of an obsolete date.
    public init(keptBytes: Int64, totalBytes: Int64?, response: HeaderFields, now: Int64) {
        self.keptBytes = keptBytes
        self.totalBytes = totalBytes
        validator = Validator(response: response, now: now)
        isIdentity = response.isIdentity
    }

    /// Takes what somebody else found fit to go on with.
    ///
    /// - Parameter validator: Of bytes without a content coding.
    public init(keptBytes: Int64, totalBytes: Int64?, validator: Validator) {
        self.keptBytes = keptBytes
        self.totalBytes = totalBytes
        self.validator = validator
        isIdentity = true
    }
}

extension HeaderFields {
    /// Whether a response's body has no content coding: RFC 9110, section 8.4. `identity` is none, though not to be
    /// sent.
    var isIdentity: Bool {
        FieldList.members(values(bytes: "content-encoding")).allSatisfy {
            $0.map(\.lowercased).elementsEqual("identity".utf8)
        }
    }
}
