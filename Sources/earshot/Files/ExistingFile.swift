internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// File that exists at the place of a body.
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
    let bodyRecord: BodyRecord?

    /// - Parameter target: path with links resolved, where the record is; nil for the path itself.
    init(_ path: String, _ status: stat, recordAt target: String? = nil) {
        self.init(
            path: path, length: Int(status.st_size), modified: Int64(status.st_mtim.tv_sec),
            isRegular: status.st_mode & S_IFMT == S_IFREG, record: .read(target ?? path, length: Int(status.st_size)))
    }

    init(path: String, length: Int, modified: Int64, isRegular: Bool, record: BodyRecord?) {
        self.path = path
        self.length = length
        self.modified = modified
        self.isRegular = isRegular
        self.bodyRecord = record
    }

    // MARK: Resumption

    /// Meaning of a response to a request for the bytes after the file.
    enum Rest: Equatable {
        /// The file has all bytes.
        case none
        /// The body continues the file.
        case body
        /// The body is complete, and replaces the file.
        case whole
        /// The response cannot be used, for this reason.
        case unusable(String)
    }

    /// Whether the rest of the body can be requested.
    var isResumable: Bool { isRegular && length > 0 }

    /// Changes a request to one for the bytes after the file. The bytes of a coding could not be appended. The broker
    /// would compare the expected hash with that of the rest.
    mutating func requestRest(_ fetch: inout Fetch) {
        // Some servers answer an open range with 416.
        let end = bodyRecord?.total.flatMap { $0 > length ? "\($0 - 1)" : nil } ?? ""
        fetch.add(field: "range: bytes=\(length)-\(end)")
        fetch.add(field: "accept-encoding: identity")
        // The server then sends the complete body if the file is of another version, also one of the same length.
        if let bodyRecord { fetch.add(field: "if-range: \(bodyRecord.validator)") }
        digest = fetch.options.digest
        fetch.options.digest = nil
    }

    /// Whether a complete body has the expected hash.
    func expects(_ response: Terminal.Response?) -> Bool { digest == nil || digest == response?.sha256 }

    /// Returns the use of a response to such a request. Nil for a failure of another kind.
    ///
    /// - Parameter received: number of bytes of its body; nil while it grows.
    func remainder(of status: Int?, _ fields: HeaderFields, received: Int?) -> Rest? {
        guard status == 206 || status == 416 else { return .whole }
        let range = fields.first("content-range").flatMap { ContentRange($0) }
        let now = Int64(time(nil))
        switch bodyRecord?.beginning.map({
            ResumeRule().outcome(status: status ?? 0, response: fields, kept: $0, now: now)
        }
        ) {
        case .append(let start, let end, let total):
            guard end == total ?? end, received ?? Int(end - start) == Int(end - start) else { break }
            return .body
        case .alreadyWhole: return Rest.none
        case .startOver, .unrelated, .mismatch:
            // Without its length a 416 says nothing about the file.
            if status == 416, range?.totalBytes == nil { return nil }
            return .unusable(Self.advice("the server sent another version, or another range than the rest"))
        case nil: return foreignRest(of: status, range, fields, received: received)
        }
        return .unusable(Self.advice("the server sent another range than the rest"))
    }

    /// Returns the use of a response for a file of another program, whose version is unknown. Its body is the rest only if
    /// the server states that the version is no newer than the file.
    private func foreignRest(
        of status: Int?, _ range: ContentRange?, _ fields: HeaderFields, received: Int?
    ) -> Rest? {
        if status == 416 {
            guard let total = range?.totalBytes, total <= Int64(length) else { return nil }
            return total == Int64(length) ? Rest.none : .unusable(Self.advice("the file is longer than the body"))
        }
        guard let bytes = range?.bytes, bytes.lowerBound == Int64(length),
            bytes.upperBound == range?.totalBytes ?? bytes.upperBound, received ?? bytes.count == bytes.count,
            fields.isIdentity
        else { return .unusable(Self.advice("the server sent another range than the rest")) }
        guard let time = FileTime.of(fields) else {
            return .unusable(Self.advice("nothing shows that the server still has this version of the file"))
        }
        return time > modified
            ? .unusable(Self.advice("the body at the server is newer than the partial file")) : .body
    }

    private static func advice(_ reason: String) -> String { "\(reason); delete the file, or omit --continue" }
}
