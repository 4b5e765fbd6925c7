internal import Curl
internal import EarshotHTTP
internal import Glibc

/// Refusals for failed transfers of libcurl: a code, and a detail without text of a server.
extension Refusal {
    /// The refusal of a failed transfer. Its detail holds no text of a server, unlike libcurl's message.
    init(_ failure: TransferFailure, _ result: TransferResult, _ plan: TransferPlan) {
        self.init(FailureCode(failure), Self.detail(failure, result, plan))
        if code == .proxyUnavailable {
            retryAfter = result.proxyRetryAfter.flatMap { RetryAfter($0, now: Int64(time(nil))) }
        }
    }

    /// The refusal of a job whose host, or whose proxy, has no address.
    init(_ code: FailureCode, lookedUpFor plan: TransferPlan) {
        let fault = code == .unknownHost ? "does not exist" : "could not be resolved"
        self.init(code, plan.proxy.map { "The host name of the proxy \($0.name) \(fault)." })
    }

    /// Cause and, after a semicolon, the next step; nil for the sentence of the code.
    private static func detail(_ failure: TransferFailure, _ result: TransferResult, _ plan: TransferPlan) -> String? {
        switch failure {
        case .proxy(let fault): return plan.proxy.map { detail(fault, of: $0) }
        case .tls, .certificate, .alert, .notTLS, .clientCertificateRefused:
            return TLSSentence(result, plan).text(failure)
        case .headerTooLarge: return "The header of the response is too long."
        case .handshakeTimeout where plan.proxy == nil:
            return "The server accepted the connection, but did not complete the TLS handshake in time."
        default: break
        }
        guard let proxy = plan.proxy, !result.wasConnected else { return nil }
        switch failure {
        case .connectRefused: return "The proxy \(proxy.name) refused the connection; check its address."
        case .connectFailed: return "No connection to the proxy \(proxy.name) could be made; check its address."
        case .connectTimeout: return "The connection to the proxy \(proxy.name) timed out; check its address."
        case .handshakeTimeout:
            return "The proxy accepted the connection, but did not connect to the server in time."
        case .resolve: return "The host name of the proxy \(proxy.name) could not be resolved."
        case .reset: return "The proxy \(proxy.name) closed the connection before it was connected to the server."
        default: return nil
        }
    }

    private static func detail(_ failure: ProxyFailure, of proxy: ProxyAddress) -> String {
        let subject = "The proxy \(proxy.name)"
        switch failure {
        case .status(407) where proxy.userinfo == nil, .methodRefused where proxy.userinfo == nil:
            let status = failure == .methodRefused ? "" : " (status 407)"
            return "\(subject) requires a user and password\(status); give them in its URL."
        case .status(407): return "\(subject) refused its user and password (status 407); correct them."
        case .status(let status): return "\(subject) refused to connect to the server (status \(status))."
        case .credentialsRefused: return "\(subject) refused its user and password; correct them."
        case .methodRefused: return "\(subject) accepts neither its user and password nor a connection without."
        case .userRefused: return "\(subject) requires another user; give it in the proxy's URL."
        case .rejected: return "\(subject) could not connect to the server, or refused to."
        case .tooLong: return "\(subject) takes no host name, user or password of more than 255 bytes."
        case .malformed: return "\(subject) does not speak this version of SOCKS; correct its scheme."
        case .closed: return "\(subject) closed the connection before it was connected to the server."
        case .reply(.unassigned): return "\(subject) could not connect to the server, for an unknown reason."
        case .reply(let reply): return "\(subject) \(words(for: reply)) (reply \(reply.rawValue))."
        }
    }

    private static func words(for reply: ProxyFailure.Reply) -> String {
        switch reply {
        case .failure, .unassigned: "could not connect to the server"
        case .notAllowed: "does not allow the connection to the server"
        case .networkUnreachable: "cannot reach the network of the server"
        case .hostUnreachable: "cannot reach the server"
        case .refused: "reports that the server refused the connection"
        case .expired: "could not connect to the server in time"
        case .commandUnsupported: "opens no connections"
        case .addressUnsupported: "does not support addresses of this kind"
        }
    }
}

extension FailureCode {
    /// The wire code of a transfer failure.
    init(_ failure: TransferFailure) {
        switch failure {
        case .connectRefused: self = .connectRefused
        case .connectFailed: self = .connectFailed
        case .addressRefused: self = .addressRefused
        case .connectTimeout, .handshakeTimeout: self = .connectTimeout
        case .timeout: self = .timeout
        case .resolve: self = .dnsFailed
        case .tls, .certificate, .alert, .notTLS, .clientCertificateRefused: self = .tls
        case .proxy(let failure): self.init(failure)
        case .reset: self = .reset
        case .truncated: self = .truncated
        case .protocolError, .headerTooLarge: self = .protocolError
        case .encoding: self = .encodingError
        case .malformedURL: self = .malformedURL
        case .unsupportedScheme: self = .unsupportedScheme
        // The sink records its own refusal, so without one the cause is unknown.
        case .aborted, .other: self = .internalError
        }
    }
}

extension FailureCode {
    /// The wire code for a proxy that opened no connection: that of the same failure without a proxy, if there is one.
    init(_ failure: ProxyFailure) {
        switch failure {
        case .status(429), .status(502...504): self = .proxyUnavailable
        case .status: self = .proxyRefused
        case .reply(.refused): self = .connectRefused
        case .reply(.failure), .reply(.networkUnreachable), .reply(.hostUnreachable), .reply(.expired),
            .reply(.unassigned), .rejected:
            self = .connectFailed
        case .reply(.notAllowed), .reply(.commandUnsupported), .reply(.addressUnsupported), .userRefused,
            .credentialsRefused, .methodRefused, .tooLong, .malformed:
            self = .proxyRefused
        case .closed: self = .reset
        }
    }
}

extension FailureCode {
    /// Whether the bytes received before this failure can be trusted and kept for resumption.
    var leavesGoodBytes: Bool {
        switch self {
        case .spoolFull, .spoolFailed, .protocolError, .encodingError, .tooCompressed, .internalError: false
        default: true
        }
    }
}
