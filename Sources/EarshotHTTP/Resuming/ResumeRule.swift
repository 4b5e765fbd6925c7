internal import EarshotWire

/// Resumption of interrupted transfers without ever joining two representations: RFC 9110, sections 13.1.5, 14.2 and
/// 15.3.7.3. In doubt the whole body is fetched again.
public struct ResumeRule: Hashable, Sendable {
    public init() {}

    /// Returns the fields that request the missing part of `kept`; nil if the whole must be requested.
    ///
    /// Only a GET without its own ranges and conditions is resumed, for bytes without content coding and with a strong
    /// validator. The fields include `Accept-Encoding: identity`, because offsets differ in an encoded body. The range
    /// is closed if the length is known, because some servers answer 416 to an open one.
    public func rangeRequestFields(toResume kept: PartialBody, of request: HTTPRequest) -> HeaderFields? {
        guard request.method == .get, !request.selectsResponse, kept.keptBytes > 0, kept.hasIdentityCoding,
            kept.keptBytes <= kept.totalBytes ?? .max, let validator = kept.validator.strongValidatorText
        else { return nil }
        var fields = HeaderFields()
        let last = kept.totalBytes.flatMap { $0 > kept.keptBytes ? String($0 - 1) : nil } ?? ""
        fields.appendUnchecked("range".utf8, "bytes=\(kept.keptBytes)-\(last)".utf8)
        fields.appendUnchecked("if-range".utf8, validator)
        fields.appendUnchecked("accept-encoding".utf8, "identity".utf8)
        return fields
    }

    /// Returns the beginning of a body if the transfer can be resumed after it; nil otherwise.
    ///
    /// - Parameters:
    ///   - keptBytes: Number of bytes from the start of the body.
    ///   - status: Status of the response; only a 200 is a whole representation.
    ///   - response: Fields of the response.
    ///   - request: Request that it answers.
    ///   - now: Seconds since 1970; determines the century of an obsolete date format.
    public func partialBody(
        keptBytes: Int64, status: Int, response: HeaderFields, of request: HTTPRequest, now: Int64
    ) -> PartialBody? {
        guard status == 200 else { return nil }
        let length = response.singleValue(named: "content-length").flatMap {
            parseDecimal($0.span, in: $0.span.indices, maximum: .max)
        }
        // Contradictory lengths cannot verify a later response.
        guard length != nil || !response.contains("content-length") else { return nil }
        let kept = PartialBody(keptBytes: keptBytes, totalBytes: length.map { Int64($0) }, response: response, now: now)
        return kept.validator.ifRange != nil && rangeRequestFields(toResume: kept, of: request) != nil ? kept : nil
    }

    /// Returns the fields of the complete response, combined from the first response and the last one: RFC 9110,
    /// section 15.3.7.3.
    ///
    /// - Parameters:
    ///   - latest: Fields of the last 206; nil after a 416, whose fields do not describe the body.
    ///   - length: Length of the complete body in bytes.
    public func mergedFields(of first: HeaderFields, completedBy latest: HeaderFields?, length: Int) -> HeaderFields {
        // The stored tag is the one with which the bytes were compared.
        var whole =
            latest.map { ParsedFields(first).updated(by: ParsedFields($0), keepsEntityTag: true).fields } ?? first
        whole.removeAll(named: "content-range")
        whole.removeAll(named: "content-length")
        whole.appendUnchecked("content-length".utf8, String(length).utf8)
        return whole
    }

    /// Evaluates the response to a request for the rest.
    ///
    /// - Parameters:
    ///   - status: Any number that a server sent.
    ///   - response: Fields of the response.
    ///   - now: Seconds since 1970; determines the century of an obsolete date format.
    public func outcome(status: Int, response: HeaderFields, kept: PartialBody, now: Int64) -> ResumeOutcome {
        switch status {
        case 200: return .startOver
        case 206: return partialContentOutcome(response, kept, now: now) ?? .mismatch
        case 416: return isComplete(kept, confirmedBy: response, now: now) ? .alreadyComplete : .mismatch
        default: return .notAResumption
        }
    }

    /// Returns the position of a 206's body; nil if any part of the response is inconsistent.
    private func partialContentOutcome(_ response: HeaderFields, _ kept: PartialBody, now: Int64) -> ResumeOutcome? {
        // A multipart body has no Content-Range of its own.
        guard let range = response.singleValue(named: "content-range").flatMap({ ContentRange(fieldValue: $0) }),
            let bytes = range.byteRange, bytes.lowerBound == kept.keptBytes, response.hasIdentityCoding,
            kept.hasIdentityCoding, kept.validator.isStronglyEqual(to: Validator(response: response, now: now))
        else { return nil }
        if let total = range.totalBytes, let known = kept.totalBytes, total != known { return nil }
        let total = range.totalBytes ?? kept.totalBytes
        guard bytes.upperBound <= total ?? .max else { return nil }
        if response.contains("content-length") {
            guard let length = response.singleValue(named: "content-length"),
                let announced = parseDecimal(length.span, in: length.span.indices, maximum: .max),
                Int64(announced) == bytes.upperBound - bytes.lowerBound
            else { return nil }
        }
        return .append(from: bytes.lowerBound, to: bytes.upperBound, total: total)
    }

    /// Returns whether a 416 confirms that the stored bytes are complete. The representation is the same if the first
    /// response had this length, or the 416 has the same strong validator.
    private func isComplete(_ kept: PartialBody, confirmedBy response: HeaderFields, now: Int64) -> Bool {
        guard let range = response.singleValue(named: "content-range").flatMap({ ContentRange(fieldValue: $0) }),
            range.byteRange == nil, range.totalBytes == kept.keptBytes, kept.hasIdentityCoding, kept.validator.isStrong
        else { return false }
        let validator = Validator(response: response, now: now)
        guard !kept.validator.contradicts(validator) else { return false }
        return kept.totalBytes.map { $0 == kept.keptBytes } ?? kept.validator.isStronglyEqual(to: validator)
    }
}

/// Result of requesting the rest of a body.
public enum ResumeOutcome: Hashable, Sendable {
    /// Append the body at offset `from`, the end of the stored bytes; it ends before `to`. If `total` is known and
    /// larger, request the rest again.
    case append(from: Int64, to: Int64, total: Int64?)
    /// The body is complete from its first byte: discard the stored bytes.
    case startOver
    /// The stored bytes are complete; discard the response's body.
    case alreadyComplete
    /// The body belongs to another representation or position: discard it and the stored bytes, and request the whole.
    case mismatch
    /// The response is a redirect or an error: handle it as if nothing were stored. The stored bytes remain valid.
    case notAResumption
}

/// Stored beginning of an interrupted transfer's body, and the facts of its response that `ResumeRule` needs.
public struct PartialBody: Sendable {
    /// Number of bytes stored from the start of the body.
    public let keptBytes: Int64

    /// Length of the complete body in bytes, if the server sent it.
    public let totalBytes: Int64?

    /// Validator of the response that the body belongs to.
    public let validator: Validator

    /// Whether the stored bytes are those of the representation, without content coding.
    public let hasIdentityCoding: Bool

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
        hasIdentityCoding = response.hasIdentityCoding
    }

    /// Creates the description of a body that another component found resumable.
    ///
    /// - Parameter validator: Validator of bytes without content coding.
    public init(keptBytes: Int64, totalBytes: Int64?, validator: Validator) {
        self.keptBytes = keptBytes
        self.totalBytes = totalBytes
        self.validator = validator
        hasIdentityCoding = true
    }
}

extension HeaderFields {
    /// Whether a response's body has no content coding: RFC 9110, section 8.4. `identity` counts as none, although it
    /// should not be sent.
    public var hasIdentityCoding: Bool {
        FieldList.members(valueBytes(named: "content-encoding")).allSatisfy {
            $0.map(\.lowercased).elementsEqual("identity".utf8)
        }
    }
}
