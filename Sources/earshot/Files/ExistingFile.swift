internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Existing file at the output path of a body.
struct ExistingFile {
    let path: String
    /// Size in bytes.
    let length: Int
    /// Time of the last change, in seconds since 1970.
    let modified: Int64
    let isRegular: Bool
    /// Expected SHA-256 of the complete body, as hexadecimal digits; nil for any.
    var digest: String?
    /// Version of the body in the file; nil if it is unknown.
    let bodyRecord: PartialBodyRecord?

    /// - Parameter target: path with links resolved, where the record is; nil for the path itself.
    init(_ path: String, _ status: stat, recordAt target: String? = nil) {
        self.init(
            path: path, length: Int(status.st_size), modified: Int64(status.st_mtim.tv_sec),
            isRegular: status.st_mode & S_IFMT == S_IFREG, record: .read(target ?? path, length: Int(status.st_size)))
    }

    init(path: String, length: Int, modified: Int64, isRegular: Bool, record: PartialBodyRecord?) {
        self.path = path
        self.length = length
        self.modified = modified
        self.isRegular = isRegular
        self.bodyRecord = record
    }

    // MARK: Resumption

    /// Meaning of a response to a request for the bytes after the file.
    enum ResumptionResult: Equatable {
        /// The file has all bytes.
        case fileComplete
        /// The body continues the file.
        case body
        /// The body is complete, and replaces the file.
        case replaceWithBody
        /// The response cannot be used, for this reason.
        case unusable(String)
    }

    /// Whether the rest of the body can be requested.
    var isResumable: Bool { isRegular && length > 0 }

    /// Changes a request to one for the bytes after the file. The bytes of a coding could not be appended. The broker
    /// would compare the expected hash with that of the rest.
    mutating func requestRemainder(_ fetch: inout Fetch) {
        // Some servers answer an open range with 416.
        let end = bodyRecord?.totalLength.flatMap { $0 > length ? "\($0 - 1)" : nil } ?? ""
        fetch.addHeaderField("range: bytes=\(length)-\(end)")
        fetch.addHeaderField("accept-encoding: identity")
        // The server then sends the complete body if the file is of another version, also one of the same length.
        if let bodyRecord { fetch.addHeaderField("if-range: \(bodyRecord.validator)") }
        digest = fetch.options.expectedSHA256
        fetch.options.expectedSHA256 = nil
    }

    /// Whether a complete body has the expected hash.
    func matchesDigest(of response: Terminal.Response?) -> Bool { digest == nil || digest == response?.sha256 }

    /// Returns the use of a response to such a request. Nil for a failure of another kind.
    ///
    /// - Parameter received: number of bytes of its body; nil while it grows.
    func resumptionResult(of status: Int?, _ fields: HeaderFields, received: Int?) -> ResumptionResult? {
        guard status == 206 || status == 416 else { return .replaceWithBody }
        let range = fields.firstValue(named: "content-range").flatMap { ContentRange($0) }
        let now = Int64(time(nil))
        let outcome = bodyRecord?.partialBody.map {
            ResumeRule().outcome(status: status ?? 0, response: fields, kept: $0, now: now)
        }
        switch outcome {
        case .append(let start, let end, let total):
            guard end == total ?? end, received ?? Int(end - start) == Int(end - start) else { break }
            return .body
        case .alreadyComplete: return ResumptionResult.fileComplete
        case .startOver, .notAResumption, .mismatch:
            // A 416 response without the total length carries no information about the file.
            if status == 416, range?.totalBytes == nil { return nil }
            return .unusable(Self.messageWithAdvice("the server sent another version, or another range than the rest"))
        case nil: return foreignFileResult(of: status, range, fields, received: received)
        }
        return .unusable(Self.messageWithAdvice("the server sent another range than the rest"))
    }

    /// Returns the use of a response for a file of another program, whose version is unknown. Its body is the rest only
    /// if the server states that the version is no newer than the file.
    private func foreignFileResult(
        of status: Int?, _ range: ContentRange?, _ fields: HeaderFields, received: Int?
    ) -> ResumptionResult? {
        if status == 416 {
            guard let total = range?.totalBytes, total <= Int64(length) else { return nil }
            return total == Int64(length)
                ? ResumptionResult.fileComplete : .unusable(Self.messageWithAdvice("the file is longer than the body"))
        }
        guard let bytes = range?.byteRange, bytes.lowerBound == Int64(length),
            bytes.upperBound == range?.totalBytes ?? bytes.upperBound, received ?? bytes.count == bytes.count,
            fields.hasIdentityCoding
        else { return .unusable(Self.messageWithAdvice("the server sent another range than the rest")) }
        guard let time = FileTime.lastModified(of: fields) else {
            return .unusable(Self.messageWithAdvice("nothing shows that the server still has this version of the file"))
        }
        return time > modified
            ? .unusable(Self.messageWithAdvice("the body at the server is newer than the partial file")) : .body
    }

    private static func messageWithAdvice(_ reason: String) -> String {
        "\(reason); delete the file, or omit --continue"
    }
}
