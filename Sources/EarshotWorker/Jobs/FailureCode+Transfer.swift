internal import Curl
internal import EarshotHTTP

extension FailureCode {
    /// The wire's code for what became of a transfer.
    init(_ failure: TransferFailure) {
        switch failure {
        case .connectRefused: self = .connectRefused
        case .connectFailed: self = .connectFailed
        case .addressRefused: self = .addressRefused
        case .connectTimeout, .handshakeTimeout: self = .connectTimeout
        case .timeout: self = .timeout
        case .resolve: self = .dnsFailed
        case .tls, .clientCertificateRefused: self = .tls
        case .reset: self = .reset
        case .truncated: self = .truncated
        case .protocolError, .headerTooLarge: self = .protocolError
        case .encoding: self = .encodingError
        case .malformedURL: self = .malformedURL
        case .unsupportedScheme: self = .unsupportedScheme
        // Our sink says itself why it refused; without that nothing is known.
        case .aborted, .other: self = .internalError
        }
    }
}

extension FailureCode {
    /// Whether what had come of a body by then is worth keeping.
    var leavesGoodBytes: Bool {
        switch self {
        case .spoolFull, .spoolFailed, .protocolError, .encodingError, .tooCompressed, .internalError: false
        default: true
        }
    }
}
