internal import Curl
internal import EarshotHTTP

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
