/// How a broken transfer goes on where it broke, without ever joining two representations: RFC 9110, sections 13.1.5,
/// 14.2 and 15.3.7.3. Whatever is in doubt is fetched again from its first byte.
public struct ResumeRule: Hashable, Sendable {
    public init() {}

    /// The fields by which a server is asked for what is missing of `kept`; nil if the whole has to be asked for.
    ///
    /// Only a GET without ranges and conditions of its own goes on, of bytes without a content coding, by a strong
    /// validator. `Accept-Encoding: identity` is among the fields: offsets of an encoded body mean something else.
    public func fields(toResume kept: PartialBody, of request: HTTPRequest) -> HeaderFields? {
        guard request.method == .get, !request.choosesItsAnswer, kept.keptBytes > 0, kept.isIdentity,
            kept.keptBytes <= kept.totalBytes ?? .max, let validator = kept.validator.strongText
        else { return nil }
        var fields = HeaderFields()
        fields.add("range".utf8, "bytes=\(kept.keptBytes)-".utf8)
        fields.add("if-range".utf8, validator)
        fields.add("accept-encoding".utf8, "identity".utf8)
        return fields
    }

    /// The beginning of a response's body as it is worth keeping; nil if the transfer could not go on after it.
    ///
    /// - Parameters:
    ///   - keptBytes: Of the body, from its first one on.
    ///   - status: Of the response: only a 200 is a whole representation.
    ///   - response: Its fields.
    ///   - request: What it answers.
    ///   - now: Seconds since 1970, for the century of an obsolete date.
    public func beginning(
        _ keptBytes: Int64, status: Int, response: HeaderFields, of request: HTTPRequest, now: Int64
    ) -> PartialBody? {
        guard status == 200 else { return nil }
        let length = response.agreed("content-length").flatMap { decimal($0.span, $0.span.indices, maximum: .max) }
        // Two lengths that differ are no length to hold an answer against.
        guard length != nil || !response.contains("content-length") else { return nil }
        let kept = PartialBody(
            keptBytes: keptBytes, totalBytes: length.map { Int64($0) }, response: response, now: now)
        return kept.validator.ifRange != nil && fields(toResume: kept, of: request) != nil ? kept : nil
    }

    /// The fields of the whole that the first response and the one that brought the rest make together: RFC 9110,
    /// section 15.3.7.3.
    ///
    /// - Parameters:
    ///   - latest: Those of the last 206; nil after a 416, whose fields are not about the body.
    ///   - length: Bytes of the whole.
    public func fields(of first: HeaderFields, completedBy latest: HeaderFields?, length: Int) -> HeaderFields {
        // The tag that is kept is the one the bytes were compared by.
        var whole = latest.map { first.updated(by: $0, keepsEntityTag: true) } ?? first
        whole.remove("content-range")
        whole.remove("content-length")
        whole.add("content-length".utf8, String(length).utf8)
        return whole
    }

    /// Judges the answer to a request with these fields.
    ///
    /// - Parameters:
    ///   - status: Any number a server sent.
    ///   - response: The answer's fields.
    ///   - now: Seconds since 1970, for the century of an obsolete date.
    public func outcome(status: Int, response: HeaderFields, kept: PartialBody, now: Int64) -> ResumeOutcome {
        switch status {
        case 200: return .startOver
        case 206: return continuation(response, kept, now: now) ?? .mismatch
        case 416: return isWhole(kept, response, now: now) ? .alreadyWhole : .mismatch
        default: return .unrelated
        }
    }

    /// Where the body of a 206 goes; nil if anything about it is not as it should be.
    private func continuation(_ response: HeaderFields, _ kept: PartialBody, now: Int64) -> ResumeOutcome? {
        // A body of several parts has no Content-Range of its own.
        guard let range = response.agreed("content-range").flatMap({ ContentRange(bytes: $0) }),
            let bytes = range.bytes, bytes.lowerBound == kept.keptBytes, response.isIdentity, kept.isIdentity,
            kept.validator.isStronglyEqual(to: Validator(response: response, now: now))
        else { return nil }
        if let total = range.totalBytes, let known = kept.totalBytes, total != known { return nil }
        let total = range.totalBytes ?? kept.totalBytes
        guard bytes.upperBound <= total ?? .max else { return nil }
        if response.contains("content-length") {
            guard let length = response.agreed("content-length"),
                let announced = decimal(length.span, length.span.indices, maximum: .max),
                Int64(announced) == bytes.upperBound - bytes.lowerBound
            else { return nil }
        }
        return .append(from: bytes.lowerBound, to: bytes.upperBound, total: total)
    }

    /// Whether a 416 says that there is nothing behind what is kept, and that of the same representation: the first
    /// answer has told the length, or this one has the same strong validator.
    private func isWhole(_ kept: PartialBody, _ response: HeaderFields, now: Int64) -> Bool {
        guard let range = response.agreed("content-range").flatMap({ ContentRange(bytes: $0) }), range.bytes == nil,
            range.totalBytes == kept.keptBytes, kept.isIdentity, kept.validator.isStrong
        else { return false }
        let validator = Validator(response: response, now: now)
        guard !kept.validator.contradicts(validator) else { return false }
        return kept.totalBytes.map { $0 == kept.keptBytes } ?? kept.validator.isStronglyEqual(to: validator)
    }
}
