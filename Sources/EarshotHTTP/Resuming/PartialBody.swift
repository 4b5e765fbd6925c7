internal import EarshotWire

/// Stored beginning of an interrupted transfer's body, and the facts of its response that `ResumeRule` needs.
public struct PartialBody: Sendable {
    /// Number of bytes stored from the start of the body.
    public let keptBytes: Int64

    /// Length of the complete body in bytes, if the server sent it.
    public let totalBytes: Int64?

    /// Validator of the response that the body belongs to.
    public let validator: Validator

    /// Whether the stored bytes are those of the representation, without content coding.
    public let isIdentity: Bool

    /// Creates the description of a transfer.
    ///
    /// - Parameters:
    ///   - response: Fields of the 200 that began the body, or of the 206 that continued it.
    ///   - totalBytes: Length of the representation: `Content-Length` of a 200, the total of a 206.
    ///   - now: Seconds since 1970; determines the century of an obsolete date format.
    public init(keptBytes: Int64, totalBytes: Int64?, response: HeaderFields, now: Int64) {
        self.keptBytes = keptBytes
        self.totalBytes = totalBytes
        validator = Validator(response: response, now: now)
        isIdentity = response.isIdentity
    }

    /// Creates the description of a body that another component found resumable.
    ///
    /// - Parameter validator: Validator of bytes without content coding.
    public init(keptBytes: Int64, totalBytes: Int64?, validator: Validator) {
        self.keptBytes = keptBytes
        self.totalBytes = totalBytes
        self.validator = validator
        isIdentity = true
    }
}

extension HeaderFields {
    /// Whether a response's body has no content coding: RFC 9110, section 8.4. `identity` counts as none, although it
    /// should not be sent.
    public var isIdentity: Bool {
        FieldList.members(values(bytes: "content-encoding")).allSatisfy {
            $0.map(\.lowercased).elementsEqual("identity".utf8)
        }
    }
}
