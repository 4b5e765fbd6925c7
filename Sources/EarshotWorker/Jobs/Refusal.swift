internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// The failure with which the worker ends a job.
struct Refusal: Error, Equatable {
    let code: FailureCode
    /// Explanation beyond the code, without peer-supplied text.
    let detail: String
    /// Pause before another attempt, as a proxy requested it; nil for none.
    var retryAfter: RetryAfter?

    init(_ code: FailureCode, _ detail: String? = nil) {
        self.code = code
        self.detail = detail ?? code.userMessage
    }

    init(bodyFault fault: IncomingBody.Fault) {
        switch fault {
        case .tooLargeForBodyUse, .decoding(.decodingRatioExceeded): self.init(.tooCompressed)
        case .tooLarge: self.init(.tooLarge)
        case .spoolFailed(let error): self.init(spoolError: error)
        case .decoding(.invalidEncoding): self.init(.encodingError)
        case .decoding(.emptyOutput): self.init(.encodingError, "Too many bytes of the body decode to nothing.")
        }
    }

    init(spoolError error: SystemError) {
        switch error.number {
        case EMFILE, ENFILE:
            // A retry may succeed once other transfers have closed descriptors, as after a connection without a
            // descriptor.
            self.init(
                .connectFailed, "The worker ran out of file descriptors; raise their limit or lower the setting slots.")
        case EFBIG:
            self.init(
                .spoolFull,
                "The body is larger than the file size limit of the bus permits; raise the limit (ulimit -f, LimitFSIZE=)."
            )
        case ENOSPC where error == SpoolFolder.reserveReached:
            self.init(
                .spoolFull,
                "The disk of the spool has only the setting spool-free left; free disk space, or lower spool-free.")
        case ENOSPC, EDQUOT: self.init(.spoolFull)
        default: self.init(.spoolFailed, error.description)
        }
    }

    init(headFault fault: ResponseHead.Fault) {
        switch fault {
        case .malformed: self.init(.protocolError, "A line of the response's header is malformed.")
        case .fieldsTooLong: self.init(.protocolError, "The header of the response is too long.")
        }
    }
}

/// Refusals for failed transfers of libcurl: a code, and a detail without text of a server.
extension Refusal {
    /// Creates the refusal of a failed transfer. Its detail contains no text of a server, unlike libcurl's message.
    init(_ failure: TransferFailure, result: TransferResult, plan: TransferPlan) {
        self.init(FailureCode(failure), Self.transferDetail(failure, result: result, plan: plan))
        if code == .proxyUnavailable {
            retryAfter = result.proxyRetryAfter.flatMap { RetryAfter($0, now: Int64(time(nil))) }
        }
    }

    /// Creates the refusal of a job whose host, or whose proxy, has no address.
    init(_ code: FailureCode, failedLookupOf plan: TransferPlan) {
        let fault = code == .unknownHost ? "does not exist" : "could not be resolved"
        self.init(code, plan.proxy.map { "The host name of the proxy \($0.hostAndPort) \(fault)." })
    }

    /// Returns the cause and, after a semicolon, the next step; nil for the sentence of the code.
    private static func transferDetail(
        _ failure: TransferFailure, result: TransferResult, plan: TransferPlan
    ) -> String? {
        switch failure {
        case .proxyFailed(let fault): return plan.proxy.map { proxyDetail(fault, of: $0) }
        case .tlsFailed, .certificateRejected, .tlsAlert, .notTLS, .clientCertificateRefused:
            return TLSSentence(result: result, plan: plan).sentence(for: failure)
        case .headerTooLarge: return "The header of the response is too long."
        case .handshakeTimeout where plan.proxy == nil:
            return "The server accepted the connection, but did not complete the TLS handshake in time."
        default: break
        }
        guard let proxy = plan.proxy, !result.wasConnected else { return nil }
        switch failure {
        case .connectRefused: return "The proxy \(proxy.hostAndPort) refused the connection; check its address."
        case .connectFailed: return "No connection to the proxy \(proxy.hostAndPort) could be made; check its address."
        case .connectTimeout: return "The connection to the proxy \(proxy.hostAndPort) timed out; check its address."
        case .handshakeTimeout:
            return "The proxy accepted the connection, but did not connect to the server in time."
        case .hostNotResolved: return "The host name of the proxy \(proxy.hostAndPort) could not be resolved."
        case .reset:
            return "The proxy \(proxy.hostAndPort) closed the connection before it was connected to the server."
        default: return nil
        }
    }

    private static func proxyDetail(_ failure: ProxyFailure, of proxy: ProxyAddress) -> String {
        let subject = "The proxy \(proxy.hostAndPort)"
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
        case .hostOrCredentialsTooLong: return "\(subject) takes no host name, user or password of more than 255 bytes."
        case .malformed: return "\(subject) does not speak this version of SOCKS; correct its scheme."
        case .closed: return "\(subject) closed the connection before it was connected to the server."
        case .socksReply(.unassigned): return "\(subject) could not connect to the server, for an unknown reason."
        case .socksReply(let reply): return "\(subject) \(description(of: reply)) (reply \(reply.rawValue))."
        }
    }

    private static func description(of reply: ProxyFailure.Reply) -> String {
        switch reply {
        case .generalFailure, .unassigned: "could not connect to the server"
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
        case .hostNotResolved: self = .dnsFailed
        case .tlsFailed, .certificateRejected, .tlsAlert, .notTLS, .clientCertificateRefused: self = .tls
        case .proxyFailed(let failure): self.init(failure)
        case .reset: self = .connectionReset
        case .truncated: self = .truncated
        case .protocolError, .headerTooLarge: self = .protocolError
        case .invalidContentEncoding: self = .encodingError
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
        case .socksReply(.refused): self = .connectRefused
        case .socksReply(.generalFailure), .socksReply(.networkUnreachable), .socksReply(.hostUnreachable),
            .socksReply(.expired), .socksReply(.unassigned), .rejected:
            self = .connectFailed
        case .socksReply(.notAllowed), .socksReply(.commandUnsupported), .socksReply(.addressUnsupported), .userRefused,
            .credentialsRefused, .methodRefused, .hostOrCredentialsTooLong, .malformed:
            self = .proxyRefused
        case .closed: self = .connectionReset
        }
    }
}

extension FailureCode {
    /// Whether the bytes received before this failure can be trusted and kept for resumption.
    var allowsResumption: Bool {
        switch self {
        case .spoolFull, .spoolFailed, .protocolError, .encodingError, .tooCompressed, .internalError: false
        default: true
        }
    }
}

/// Cause of a TLS failure and, after a semicolon, the next step.
struct TLSSentence {
    /// The end of the connection that failed. A proxy has its own TLS connection, before its response to CONNECT.
    private let failedPeer: String
    private let hasCustomAuthorities: Bool
    private let hasClientCertificate: Bool

    init(result: TransferResult, plan: TransferPlan) {
        let isProxyFailure = plan.proxy?.kind == .https && result.proxyStatus == 0
        failedPeer = isProxyFailure ? "proxy" : "server"
        hasCustomAuthorities = plan.request.caCertificates != nil || plan.request.caFile != nil
        hasClientCertificate = plan.request.clientCertificate != nil
    }

    /// Returns the detail of a failure; nil for other failures than those of TLS, and without a known cause.
    func sentence(for failure: TransferFailure) -> String? {
        switch failure {
        case .certificateRejected(let result): certificateSentence(verifyResult: result)
        case .tlsAlert(let number): alertSentence(number: number)
        case .notTLS: "The \(failedPeer) does not speak TLS on this port; check the port, or use http."
        case .clientCertificateRefused where hasClientCertificate: "The \(failedPeer) refused the client certificate."
        case .clientCertificateRefused: "The \(failedPeer) requires a client certificate; give client-certificate."
        default: nil
        }
    }

    /// - Parameter result: One of OpenSSL's `X509_V_ERR_…`: openssl-verification-options(1). It is 0 or 1, the value
    ///   before a verification, if libcurl itself refuses the host.
    private func certificateSentence(verifyResult result: Int) -> String {
        let subject = "The \(failedPeer)'s certificate"
        switch result {
        case 0, 1, 62, 64: return "\(subject) is for another host; check the host name."
        case 9: return "\(subject) is not valid yet; check the clock of this machine."
        case 10: return "\(subject) has expired."
        case 23: return "\(subject) is revoked."
        case 2 where hasCustomAuthorities, 18...21 where hasCustomAuthorities:
            return "\(subject) has no issuer in the file of trusted certificates."
        case 18: return "\(subject) is self-signed; give ca-file to trust it."
        case 2, 19...21:
            return "The issuer of the \(failedPeer)'s certificate is unknown; give ca-file for a private CA."
        default: return "\(subject) is not accepted (OpenSSL's reason \(result))."
        }
    }

    /// - Parameter number: Alert of RFC 8446, section 6.
    private func alertSentence(number: Int) -> String {
        switch number {
        case 70: "The \(failedPeer) supports neither TLS 1.2 nor TLS 1.3."
        case 112: "The \(failedPeer) does not know this host name (alert unrecognized_name); check the host name."
        default: "The \(failedPeer) refused the TLS handshake (alert \(number))."
        }
    }
}
