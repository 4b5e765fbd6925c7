internal import CLibCurl
internal import Glibc

/// Why a transfer did not end with a whole response.
public enum TransferFailure: Hashable, Sendable {
    /// The host answered that nobody listens there.
    case connectRefused
    /// The host could not be reached.
    case connectFailed
    /// No connection was made in time.
    case connectTimeout
    /// A connection was made, but TLS or the proxy behind it was not ready in time.
    case handshakeTimeout
    /// The whole took longer than allowed.
    case timeout
    /// The name has no address.
    case resolve
    /// Handshake or certificate.
    case tls
    /// The server wants another client certificate, or one at all.
    case clientCertificateRefused
    /// The sink admitted no address of the host, and nothing was sent.
    case addressRefused
    /// The connection broke before the answer was whole, or without any.
    case reset
    /// The connection was closed in good order before the announced end.
    case truncated
    /// What came is not HTTP as we speak it, HTTP/0.9 included.
    case protocolError
    /// The content encoding is broken or unknown.
    case encoding
    /// The URL is none.
    case malformedURL
    /// The URL's scheme is not `http` or `https`.
    case unsupportedScheme
    /// The sink refused a byte.
    case aborted
    /// The header lines together are longer than `Multi.headerBytesLimit`, or one is longer than libcurl keeps.
    case headerTooLarge
    /// Something else; the number is libcurl's CURLcode.
    case other(code: Int)
}

extension TransferFailure {
    /// How far a transfer came.
    enum Stage: Comparable {
        /// No connection was made.
        case connecting
        /// TLS or a proxy was not ready.
        case preparing
        /// The connection was ready for the request.
        case connected
        /// The status of the response was received.
        case answered
    }

    /// The meaning of libcurl's result.
    ///
    /// - Parameter sentence: libcurl's error message. It alone tells some failures of receiving apart, which share a code.
    /// - Returns: nil for success.
    init?(_ result: CURLcode, osError: Int32, stage: Stage, sentence: String) {
        let isConnected = stage >= .connected
        switch result {
        case CURLE_OK:
            return nil
        case CURLE_COULDNT_CONNECT:
            self = osError == ECONNREFUSED ? .connectRefused : .connectFailed
        case CURLE_OPERATION_TIMEDOUT:
            self =
                switch stage {
                case .connecting: .connectTimeout
                case .preparing: .handshakeTimeout
                case .connected, .answered: .timeout
                }
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY:
            self = .resolve
        case CURLE_RECV_ERROR where stage == .answered && sentence.contains("unexpected eof"):
            // Result of libcurl 8 for a TLS connection that ends without close_notify.
            self = .truncated
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CLIENTCERT:
            self = Self.failure(sentence) ?? (result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR ? .reset : .tls)
        case CURLE_GOT_NOTHING, CURLE_HTTP2, CURLE_HTTP2_STREAM:
            self = .reset
        case CURLE_PARTIAL_FILE:
            self = .truncated
        case CURLE_WEIRD_SERVER_REPLY:
            self = .protocolError
        case CURLE_OUT_OF_MEMORY, CURLcode(100):
            // One line of more than 100 KiB, or of more than 16 KiB of a proxy: CURLE_TOO_LARGE (100) since libcurl 8.6.
            // Where memory is short Swift ends the process.
            self = .headerTooLarge
        case CURLE_BAD_FUNCTION_ARGUMENT where isConnected:
            // Result of libcurl 7.88 for a header line that is a continuation of none, or has no colon.
            self = .protocolError
        case CURLE_UNSUPPORTED_PROTOCOL:
            // Also what libcurl says to an answer without a status line (HTTP/0.9).
            self = isConnected ? .protocolError : .unsupportedScheme
        case CURLE_URL_MALFORMAT:
            self = .malformedURL
        case CURLE_BAD_CONTENT_ENCODING, CURLE_WRITE_ERROR:
            // A write error that the sink did not ask for comes from a decoder.
            self = .encoding
        case CURLE_SSL_ENGINE_NOTFOUND, CURLE_SSL_ENGINE_SETFAILED, CURLE_SSL_CERTPROBLEM,
            CURLE_SSL_CIPHER, CURLE_PEER_FAILED_VERIFICATION, CURLE_USE_SSL_FAILED, CURLE_SSL_ENGINE_INITFAILED,
            CURLE_SSL_CACERT_BADFILE, CURLE_SSL_SHUTDOWN_FAILED, CURLE_SSL_CRL_BADFILE, CURLE_SSL_ISSUER_ERROR,
            CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_INVALIDCERTSTATUS:
            self = .tls
        default:
            self = .other(code: Int(result.rawValue))
        }
    }
    /// The failure that an error message of libcurl tells; nil if it is another one.
    private static func failure(_ sentence: String) -> TransferFailure? {
        let sentence = sentence.lowercased()
        // `Illegal or missing hexadecimal sequence in chunked-encoding` and others.
        if sentence.contains("chunk") { return .protocolError }
        if sentence.contains("too large") { return .headerTooLarge }
        // OpenSSL's names of the alerts of RFC 8446, section 6.2, with which a server answers a client's certificate.
        let isAnswer = ["certificate", "unknown ca", "access denied"].contains { sentence.contains($0) }
        return sentence.contains(" alert ") && isAnswer ? .clientCertificateRefused : nil
    }
}
