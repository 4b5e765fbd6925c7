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
        case .tls, .clientCertificateRefused: self = .tls
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
    /// Whether the bytes received before this failure can be trusted and kept for resumption.
    var leavesGoodBytes: Bool {
        switch self {
        case .spoolFull, .spoolFailed, .protocolError, .encodingError, .tooCompressed, .internalError: false
        default: true
        }
    }
}
