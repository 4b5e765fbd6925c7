internal import EarshotHTTP
internal import EarshotWire

/// Result of an attempt as other nodes learn it from the engine. It has no body: a node reads that from the node that
/// has it.
///
/// ```
/// 1 r 200 5120 3f2a… 10.0.0.1:5766/KEY/TOKEN      status, length, SHA-256 (- for none), place of the body (- for none)
/// content-type: text/html
///
/// 1 f connect-refused - No route to host           code, size limit that the body exceeded (- for none), detail
/// ```
struct SharedResult: Equatable {
    enum Content: Equatable {
        case response(Response)
        /// - allowedBytes: size limit of an attempt that failed as `too-large`.
        case failure(FailureCode, allowedBytes: Int?, detail: String?)
    }

    struct Response: Equatable {
        var status: Int
        /// Length of the decoded body.
        var bodyLength: Int
        var sha256: String?
        /// Where the body is; nil for a response whose body no node needs, that of a redirect or of HEAD.
        var bodyAddress: BodyAddress?
        var fields: [UInt8]
    }

    let content: Content

    init(_ content: Content) { self.content = content }

    /// Failures of an attempt that concern all nodes. Other codes concern one node or one request alone.
    private static let sharedFailureCodes: Set<FailureCode> = [
        .connectRefused, .connectFailed, .addressRefused, .unknownHost, .dnsFailed, .timeout, .connectTimeout,
        .tooLarge, .tooCompressed, .tls, .truncated, .connectionReset, .protocolError, .encodingError, .poisonRequest,
    ]

    /// Failures without a connection. Their cause may be the network of one node, or its name server.
    private static let outboundFailureCodes: Set<FailureCode> = [
        .connectRefused, .connectFailed, .connectTimeout, .unknownHost, .dnsFailed,
    ]

    /// Whether the way of the node to the origin may be the cause of this failure.
    static func isOutboundFailure(_ code: FailureCode) -> Bool { outboundFailureCodes.contains(code) }

    /// Whether the cause of this failure may be one node alone: its network, certificates, clock or address policy.
    /// Another node that wants the flight tries itself before a request fails.
    static func isNodeFailure(_ code: FailureCode) -> Bool {
        isOutboundFailure(code) || code == .tls || code == .addressRefused
    }

    /// Whether other nodes get this failure as the result of the attempt.
    static func isSharedFailure(_ code: FailureCode) -> Bool { sharedFailureCodes.contains(code) }

    /// Parses a result. Nil for any other bytes.
    init?(_ bytes: [UInt8]) {
        guard bytes.count <= EngineLimits.maximumResultBytes else { return nil }
        let end = bytes.firstIndex(of: UInt8(ascii: "\n")) ?? bytes.endIndex
        guard let line = String(validating: bytes[..<end], as: UTF8.self) else { return nil }
        let words = line.split(separator: " ", maxSplits: 5, omittingEmptySubsequences: false).map { String($0) }
        guard words.count >= 4, words[0] == "1" else { return nil }
        switch words[1] {
        case "r":
            guard words.count == 6, let status = Int(words[2]), (100...999).contains(status),
                let length = Int(words[3]), length >= 0
            else { return nil }
            let place = BodyAddress(words[5])
            guard words[5] == "-" || place != nil, words[4] == "-" || SpoolName.isContentAddressed(words[4]) else {
                return nil
            }
            let fields = Array(bytes[end...].dropFirst())
            guard fields.count <= WireLimits.responseFieldBytes, FieldBlock.isValid(fields) else { return nil }
            let sha256 = words[4] == "-" ? nil : words[4]
            // A body is known by its digest.
            guard place == nil || length > 0 && sha256 != nil else { return nil }
            content = .response(
                Response(status: status, bodyLength: length, sha256: sha256, bodyAddress: place, fields: fields))
        case "f":
            guard let code = FailureCode(rawValue: words[2]), Self.isSharedFailure(code) else { return nil }
            let allowed = Int(words[3])
            guard words[3] == "-" || allowed.map({ $0 >= 0 }) == true else { return nil }
            let detail = Outcome.truncatedPeerDetail(words.dropFirst(4).joined(separator: " "))
            guard detail.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f }) else { return nil }
            content = .failure(code, allowedBytes: allowed, detail: detail.isEmpty ? nil : detail)
        default: return nil
        }
    }

    /// Bytes for the engine.
    var encodedBytes: [UInt8] {
        switch content {
        case .response(let response):
            let place = response.bodyAddress?.description ?? "-"
            var bytes = Array("1 r \(response.status) \(response.bodyLength) \(response.sha256 ?? "-") \(place)".utf8)
            if !response.fields.isEmpty {
                bytes.append(UInt8(ascii: "\n"))
                bytes += response.fields
            }
            return bytes
        case .failure(let code, let allowed, let detail):
            let lines = Outcome.truncatedPeerDetail(detail ?? "").split(whereSeparator: \.isNewline)
            let words = lines.joined(separator: " ")
            return Array("1 f \(code.rawValue) \(allowed.map { String($0) } ?? "-") \(words)".utf8)
        }
    }
}
