internal import EarshotHTTP
internal import EarshotWire

/// Head of an HTTP/1 request: RFC 9112. The server accepts GET and HEAD without a body.
struct RequestHead: Equatable {
    /// Result of reading a head from the bytes of a connection.
    enum Reading: Equatable {
        /// The empty line that ends the head is missing.
        case incomplete
        /// A head, and the number of its bytes.
        case complete(RequestHead, length: Int)
        /// A request that this server rejects with a status. The rest of the connection cannot be read.
        case rejected(status: Int)
    }

    /// Maximum size in bytes. A browser sends about 1 KiB.
    static let mostBytes = 16_384

    let isHead: Bool
    /// Path of the target, percent-encoded as received.
    let path: String
    /// Names and values of the query, decoded.
    let query: [String: String]
    let fields: HeaderFields
    /// Value of `Host`, in lower case.
    let host: String
    /// Whether the client keeps the connection open after the response.
    let keepsAlive: Bool

    /// Reads the first head in `bytes`.
    ///
    /// - Parameter start: number of bytes that an earlier call has already searched for the end.
    static func read(_ bytes: [UInt8], searched start: Int = 0) -> Reading {
        guard let end = endOfHead(bytes, from: max(start - 3, 0)) else {
            return bytes.count >= mostBytes ? .rejected(status: 431) : .incomplete
        }
        guard end <= mostBytes else { return .rejected(status: 431) }
        var lines = bytes[..<end].split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
            line.last == UInt8(ascii: "\r") ? line.dropLast() : line
        }
        // The empty line and the text after it.
        lines.removeLast(2)
        guard let first = lines.first else { return .rejected(status: 400) }
        return read(first, fields: Array(lines.dropFirst()), length: end)
    }

    private static func read(_ first: ArraySlice<UInt8>, fields lines: [ArraySlice<UInt8>], length: Int) -> Reading {
        let words = first.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard words.count == 3, first.allSatisfy({ $0 > 0x1f && $0 < 0x7f }) else { return .rejected(status: 400) }
        let version = String(decoding: words[2], as: UTF8.self)
        guard version.hasPrefix("HTTP/") else { return .rejected(status: 400) }
        guard version == "HTTP/1.1" || version == "HTTP/1.0" else { return .rejected(status: 505) }
        let method = String(decoding: words[0], as: UTF8.self)
        guard method == "GET" || method == "HEAD" else { return .rejected(status: 405) }
        guard words[1].first == UInt8(ascii: "/") else { return .rejected(status: 400) }

        let fields = HeaderFields(lines: Array(lines.joined(separator: [UInt8(ascii: "\n")])))
        // A malformed line, such as a folded one, is skipped by the iterator.
        guard fields.reduce(0, { count, _ in count + 1 }) == lines.count,
            fields.allSatisfy({ $0.value.allSatisfy { $0 > 0x1f && $0 != 0x7f || $0 == UInt8(ascii: "\t") } })
        else { return .rejected(status: 400) }
        let hosts = fields.values("host")
        guard hosts.count == 1, let host = hosts.first else { return .rejected(status: 400) }
        guard !fields.contains("transfer-encoding"), fields.values("content-length").allSatisfy({ $0 == "0" }) else {
            return .rejected(status: 413)
        }
        let options = fields.values("connection").flatMap { $0.lowercased().split { $0 == "," || $0 == " " } }
        let target = words[1].split(separator: UInt8(ascii: "?"), maxSplits: 1, omittingEmptySubsequences: false)
        let head = RequestHead(
            isHead: method == "HEAD", path: String(decoding: target[0], as: UTF8.self),
            query: target.count > 1 ? query(target[1]) : [:], fields: fields, host: host.lowercased(),
            keepsAlive: version == "HTTP/1.1" ? !options.contains("close") : options.contains("keep-alive"))
        return .complete(head, length: length)
    }

    /// Returns the index after the empty line that ends a head.
    private static func endOfHead(_ bytes: [UInt8], from start: Int) -> Int? {
        var index = start
        let (lf, cr) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))
        while index < bytes.count {
            if bytes[index] == lf {
                if index + 1 < bytes.count, bytes[index + 1] == lf { return index + 2 }
                if index + 2 < bytes.count, bytes[index + 1] == cr, bytes[index + 2] == lf { return index + 3 }
            }
            index += 1
        }
        return nil
    }

    private static func query(_ text: ArraySlice<UInt8>) -> [String: String] {
        var query: [String: String] = [:]
        for pair in text.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            query[decoded(parts[0])] = parts.count > 1 ? decoded(parts[1]) : ""
        }
        return query
    }

    /// Decodes percent-escapes and plus signs.
    private static func decoded(_ text: ArraySlice<UInt8>) -> String {
        let spaced = text.map { $0 == UInt8(ascii: "+") ? UInt8(ascii: " ") : $0 }
        return String(decoding: PercentEncoding.decoded(spaced).bytes, as: UTF8.self)
    }
}
