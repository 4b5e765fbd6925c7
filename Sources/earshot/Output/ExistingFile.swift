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

    init(_ path: String, _ status: stat) {
        self.init(
            path: path, length: Int(status.st_size), modified: Int64(status.st_mtim.tv_sec),
            isRegular: status.st_mode & S_IFMT == S_IFREG)
    }

    init(path: String, length: Int, modified: Int64, isRegular: Bool) {
        self.path = path
        self.length = length
        self.modified = modified
        self.isRegular = isRegular
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
        fetch.add(field: "range: bytes=\(length)-")
        fetch.add(field: "accept-encoding: identity")
        // The server then sends the complete body if the file is of another version, also one of the same length.
        if let tag = FileTag.read(path) { fetch.add(field: "if-range: \(tag)") }
        digest = fetch.options.digest
        fetch.options.digest = nil
    }

    /// Whether a complete body has the expected hash.
    func expects(_ response: Terminal.Response?) -> Bool { digest == nil || digest == response?.sha256 }

    /// Returns the use of a response to such a request. Nil for a failure of another kind.
    func rest(of status: Int?, _ response: Terminal.Response?) -> Rest? {
        let fields = response.map { HeaderFields(lines: $0.httpFields) }
        let range = fields?.first("content-range").flatMap { ContentRange($0) }
        switch status {
        case 416:
            guard let total = range?.totalBytes, total <= Int64(length) else { return nil }
            return total == Int64(length) ? Rest.none : .unusable(Self.advice("the file is longer than the body"))
        case 206:
            guard let response, let fields, let bytes = range?.bytes, bytes.lowerBound == Int64(length),
                bytes.upperBound == range?.totalBytes ?? bytes.upperBound, bytes.count == response.length,
                fields.first("content-encoding") ?? "identity" == "identity"
            else { return .unusable(Self.advice("the server sent another range than the rest")) }
            if let time = FileTime.of(response), time > modified {
                return .unusable(Self.advice("the body at the server is newer than the partial file"))
            }
            return .body
        default: return .whole
        }
    }

    private static func advice(_ reason: String) -> String { "\(reason); delete the file, or omit --continue" }
}
