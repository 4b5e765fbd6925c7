internal import EarshotHTTP
internal import EarshotWire

/// Head of an HTTP/1 request: RFC 9112.
///
/// The reader is strict where readers are known to differ, so that no peer can make this server and another one see
/// different requests: lines end in CRLF, no line is folded, and the length of a body has one meaning.
package struct RequestHead: Equatable {
    /// Result of reading a head from the bytes of a connection.
    package enum Reading: Equatable {
        /// The empty line that ends the head is missing.
        case incomplete
        /// A head, and the number of its bytes.
        case complete(RequestHead, length: Int)
        /// A request that is rejected with a status. The rest of the connection cannot be read.
        case rejected(status: Int)
    }

    /// Length of the body: RFC 9112, section 6.3.
    package enum BodyLength: Equatable, Sendable {
        case none
        case bytes(Int)
        case chunked
    }

    /// Default maximum size in bytes. A browser sends about 1 KiB.
    static let defaultMaximumBytes = 16_384
    /// Maximum size of a host with a port. A name in the DNS has at most 253 bytes.
    private static let maximumHostBytes = 300
    /// Maximum number of digits of a length: below 2^63.
    private static let lengthDigits = 18

    let method: String
    /// Target as received. Bytes outside ASCII are percent-escaped.
    let target: String
    let fields: HeaderFields
    /// Value of `Host`, in lower case; empty if HTTP/1.0 omits it.
    let host: String
    let bodyLength: BodyLength
    let isVersion10: Bool
    /// Whether the client keeps the connection open after the response.
    let keepsAlive: Bool
    /// Whether the client waits for a `100 (Continue)` before it sends the body.
    let expectsContinue: Bool

    var isHEADMethod: Bool { method == "HEAD" }
    /// Path of a target in origin form, percent-encoded as received.
    var path: String { String(target.prefix { $0 != "?" }) }
    /// Names and values of the query, decoded.
    var query: [String: String] {
        guard let mark = target.utf8.firstIndex(of: UInt8(ascii: "?")) else { return [:] }
        return Self.parseQuery(Array(target.utf8[mark...].dropFirst())[...])
    }

    /// Reads the first head in `bytes`.
    ///
    /// - Parameters:
    ///   - start: number of bytes that an earlier call has already searched for the end.
    ///   - limit: maximum size in bytes.
    package static func parse(_ bytes: [UInt8], searched start: Int = 0, limit: Int = defaultMaximumBytes) -> Reading {
        // One empty line before the request is ignored: section 2.2.
        let first = bytes.starts(with: [cr, lf]) ? 2 : 0
        switch endOfHead(bytes, first, from: max(start - 3, first), limit: limit) {
        case .incompleteHead: return bytes.count >= limit ? .rejected(status: 431) : .incomplete
        case .malformedHead: return .rejected(status: 400)
        case .endIndex(let end):
            guard end <= limit else { return .rejected(status: 431) }
            let lines = bytes[first..<(end - 2)].split(separator: lf, omittingEmptySubsequences: false).dropLast()
                .map { $0.dropLast() }
            guard let line = lines.first else { return .rejected(status: 400) }
            return parse(requestLine: line, fields: Array(lines.dropFirst()), length: end)
        }
    }

    private static func parse(
        requestLine line: ArraySlice<UInt8>, fields lines: [ArraySlice<UInt8>], length: Int
    ) -> Reading {
        let words = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard words.count == 3, !words[0].isEmpty, !words[1].isEmpty, words[0].allSatisfy(\.isTokenByte),
            words[1].allSatisfy({ $0 > 0x20 && $0 != 0x7f })
        else { return .rejected(status: 400) }
        let version = String(decoding: words[2], as: UTF8.self)
        guard version.hasPrefix("HTTP/") else { return .rejected(status: 400) }
        guard version == "HTTP/1.1" || version == "HTTP/1.0" else { return .rejected(status: 505) }

        let fields = HeaderFields(lines: Array(lines.joined(separator: [lf])))
        // The iterator skips a malformed line, such as a folded one.
        guard fields.reduce(0, { count, _ in count + 1 }) == lines.count,
            fields.allSatisfy({ $0.value.allSatisfy { !$0.isControl || $0.isBlank } })
        else { return .rejected(status: 400) }
        let isVersion10 = version == "HTTP/1.0"
        let hosts = fields.values(named: "host")
        guard hosts.count == 1 || isVersion10 && hosts.isEmpty, isValidHost(hosts.first ?? "") else {
            return .rejected(status: 400)
        }
        let bodyLength: BodyLength
        switch lengthOfBody(fields, isVersion10: isVersion10) {
        case .success(let length): bodyLength = length
        case .failure(let rejection): return .rejected(status: rejection.status)
        }
        let expectations = fields.values(named: "expect").map { $0.lowercased() }
        guard isVersion10 || expectations.allSatisfy({ $0 == "100-continue" }) else { return .rejected(status: 417) }
        let options = fields.connectionOptions
        let head = RequestHead(
            method: String(decoding: words[0], as: UTF8.self), target: percentEscaped(words[1]), fields: fields,
            host: (hosts.first ?? "").lowercased(), bodyLength: bodyLength, isVersion10: isVersion10,
            keepsAlive: !options.contains("close") && (!isVersion10 || options.contains("keep-alive")),
            expectsContinue: !isVersion10 && !expectations.isEmpty && bodyLength != .none)
        return .complete(head, length: length)
    }

    private struct Rejection: Error {
        let status: Int
    }

    /// Length of the body by the fields, each of which must be the only one of its kind.
    private static func lengthOfBody(_ fields: HeaderFields, isVersion10: Bool) -> Result<BodyLength, Rejection> {
        let lengths = fields.values(named: "content-length")
        let codings = fields.values(named: "transfer-encoding")
        if let coding = codings.first {
            guard codings.count == 1, lengths.isEmpty, !isVersion10 else { return .failure(Rejection(status: 400)) }
            return coding.lowercased() == "chunked" ? .success(.chunked) : .failure(Rejection(status: 501))
        }
        guard let text = lengths.first else { return .success(.none) }
        guard lengths.count == 1, (1...lengthDigits).contains(text.utf8.count),
            text.utf8.allSatisfy(\.isDigit), let length = Int(text)
        else { return .failure(Rejection(status: 400)) }
        return .success(length == 0 ? .none : .bytes(length))
    }

    /// Whether a value of `Host` can be a host with a port. It has no character that leads out of an authority.
    private static func isValidHost(_ text: String) -> Bool {
        let end = text.hasPrefix("[") ? text.drop { $0 != "]" } : text[...]
        let port = end.drop { $0 != ":" }.dropFirst()
        return text.utf8.count <= maximumHostBytes && port.utf8.allSatisfy(\.isDigit)
            && text.utf8.allSatisfy { $0.isVisible && !"/\\?#@,\"<>^`{|}".utf8.contains($0) }
    }

    // MARK: Lines

    private static let (cr, lf) = (UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    private enum End {
        case incompleteHead
        /// A line with only one of the two bytes of its end, or no request line.
        case malformedHead
        /// Index after the empty line.
        case endIndex(Int)
    }

    private static func endOfHead(_ bytes: [UInt8], _ first: Int, from start: Int, limit: Int) -> End {
        var index = start
        while index < min(bytes.count, limit) {
            if bytes[index] == lf {
                guard index > first, bytes[index - 1] == cr else { return .malformedHead }
                if index == first + 1 { return .malformedHead }
                if index >= first + 3, bytes[index - 2] == lf { return .endIndex(index + 1) }
            } else if index > first, bytes[index - 1] == cr {
                return .malformedHead
            }
            index += 1
        }
        return .incompleteHead
    }

    private static func percentEscaped(_ text: ArraySlice<UInt8>) -> String {
        guard text.contains(where: { $0 > 0x7e }) else { return String(decoding: text, as: UTF8.self) }
        let digits = Array("0123456789ABCDEF".utf8)
        let bytes = text.flatMap { byte in
            byte > 0x7e ? [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]] : [byte]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func parseQuery(_ text: ArraySlice<UInt8>) -> [String: String] {
        var query: [String: String] = [:]
        for pair in text.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            query[percentDecoded(parts[0])] = parts.count > 1 ? percentDecoded(parts[1]) : ""
        }
        return query
    }

    /// Decodes percent-escapes and plus signs.
    private static func percentDecoded(_ text: ArraySlice<UInt8>) -> String {
        let spaced = text.map { $0 == UInt8(ascii: "+") ? UInt8(ascii: " ") : $0 }
        return String(decoding: PercentEncoding.decoded(spaced).bytes, as: UTF8.self)
    }
}

extension HeaderFields {
    /// Members of `Connection` in lower case.
    var connectionOptions: [String] {
        values(named: "connection")
            .flatMap { $0.lowercased().split { $0 == "," || $0 == " " || $0 == "\t" } }
            .map(String.init)
    }
}
