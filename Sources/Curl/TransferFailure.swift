internal import CLibCurl
internal import Glibc

/// Reason why a transfer did not end with a complete response.
public enum TransferFailure: Hashable, Sendable {
    /// The host refused the connection.
    case connectRefused
    /// The host is unreachable.
    case connectFailed
    /// No connection was established in time.
    case connectTimeout
    /// A connection was established, but TLS or the proxy was not ready in time.
    case handshakeTimeout
    /// The total timeout has expired.
    case timeout
    /// The host name has no address.
    case hostNotResolved
    /// TLS error without a known cause.
    case tlsFailed
    /// The certificate was not accepted. The number is OpenSSL's result of the verification, `X509_V_ERR_…`; 0 or 1
    /// if the certificate is for another host.
    case certificateRejected(Int)
    /// The peer ended the TLS connection with this alert: RFC 8446, section 6.
    case tlsAlert(Int)
    /// The peer does not speak TLS.
    case notTLS
    /// The proxy opened no connection to the server.
    case proxyFailed(ProxyFailure)
    /// The server requires a client certificate, or another one.
    case clientCertificateRefused
    /// The sink denied all addresses of the host, and nothing was sent.
    case addressRefused
    /// The connection broke before the response was complete, or before it began.
    case reset
    /// The connection was closed in an orderly way before the announced end.
    case truncated
    /// The response is not supported HTTP; includes HTTP/0.9.
    case protocolError
    /// The content coding is corrupt or unknown.
    case invalidContentEncoding
    /// The URL is invalid.
    case malformedURL
    /// The URL's scheme is not `http` or `https`.
    case unsupportedScheme
    /// The sink refused bytes.
    case aborted
    /// The header lines exceed `Multi.headerBytesLimit`, or one line exceeds libcurl's limit.
    case headerTooLarge
    /// Another error; the number is libcurl's CURLcode.
    case other(code: Int)
}

extension TransferFailure {
    /// Progress of a transfer.
    enum Stage: Comparable {
        /// No connection was established.
        case connecting
        /// TLS or a proxy was not ready.
        case preparingConnection
        /// The connection was ready for the request.
        case connected
        /// The status of the response was received.
        case receivedStatus
    }

    /// Details of a transfer beyond libcurl's result.
    struct Details {
        var osError: Int32 = 0
        var stage = Stage.connecting
        /// libcurl's error message.
        var libcurlMessage = ""
        /// Alert that the peer sent after the handshake.
        var alert: Int?
        /// CURLINFO_SSL_VERIFYRESULT, or that of the proxy.
        var verifyResult = 0
        /// Status of the proxy's response to CONNECT; 0 without one.
        var proxyStatus = 0
        /// CURLINFO_PROXY_ERROR.
        var proxyError = CURLPX_OK
    }

    /// Maps libcurl's result. Returns nil for success.
    init?(_ result: CURLcode, _ details: Details) {
        let stage = details.stage
        let isConnected = stage >= .connected
        switch result {
        case CURLE_OK:
            return nil
        case _ where details.proxyStatus >= 300 && !isConnected:
            self = .proxyFailed(.status(details.proxyStatus))
        case CURLE_PROXY:
            self = .proxyFailed(ProxyFailure(details.proxyError))
        case CURLE_COULDNT_CONNECT:
            self = details.osError == ECONNREFUSED ? .connectRefused : .connectFailed
        case CURLE_OPERATION_TIMEDOUT:
            self =
                switch stage {
                case .connecting: .connectTimeout
                case .preparingConnection: .handshakeTimeout
                case .connected, .receivedStatus: .timeout
                }
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY:
            self = .hostNotResolved
        case CURLE_RECV_ERROR where stage == .receivedStatus && details.libcurlMessage.contains("unexpected eof"):
            // libcurl 8 returns this code if a TLS connection ends without close_notify.
            self = .truncated
        case CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CLIENTCERT:
            self = Self.failure(details.libcurlMessage) ?? .tlsFailed
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR:
            let cause = Self.failure(details.libcurlMessage) ?? details.alert.flatMap { Self.failure(alert: $0) }
            // Other alerts after the handshake are faults of the server, which another attempt may not meet.
            if case .tlsAlert = cause { self = .reset } else { self = cause ?? .reset }
        case CURLE_PEER_FAILED_VERIFICATION:
            self = .certificateRejected(details.verifyResult)
        case CURLE_GOT_NOTHING, CURLE_HTTP2, CURLE_HTTP2_STREAM:
            let cause = details.alert.flatMap { Self.failure(alert: $0) }
            self = cause == .clientCertificateRefused ? .clientCertificateRefused : .reset
        case CURLE_PARTIAL_FILE:
            self = .truncated
        case CURLE_WEIRD_SERVER_REPLY:
            self = .protocolError
        case CURLE_OUT_OF_MEMORY, CURLcode(100):
            // A line of more than 100 KiB, or of more than 16 KiB from a proxy: CURLE_TOO_LARGE (100) since libcurl
            // 8.6. Real memory exhaustion makes Swift end the process.
            self = .headerTooLarge
        case CURLE_BAD_FUNCTION_ARGUMENT where isConnected:
            // libcurl 7.88 returns this code for a continuation line without predecessor, and for a line without a
            // colon.
            self = .protocolError
        case CURLE_UNSUPPORTED_PROTOCOL:
            // libcurl returns this code also for a response without a status line (HTTP/0.9).
            self = isConnected ? .protocolError : .unsupportedScheme
        case CURLE_URL_MALFORMAT:
            self = .malformedURL
        case CURLE_BAD_CONTENT_ENCODING, CURLE_WRITE_ERROR:
            // A write error not requested by the sink comes from a decoder.
            self = .invalidContentEncoding
        case CURLE_SSL_ENGINE_NOTFOUND, CURLE_SSL_ENGINE_SETFAILED, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
            CURLE_USE_SSL_FAILED, CURLE_SSL_ENGINE_INITFAILED, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_SHUTDOWN_FAILED,
            CURLE_SSL_CRL_BADFILE, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_INVALIDCERTSTATUS:
            self = .tlsFailed
        default:
            self = .other(code: Int(result.rawValue))
        }
    }

    /// Returns the failure described by an error message of libcurl; nil for other messages.
    private static func failure(_ sentence: String) -> TransferFailure? {
        let sentence = sentence.lowercased()
        // `Illegal or missing hexadecimal sequence in chunked-encoding` and others.
        if sentence.contains("chunk") { return .protocolError }
        if sentence.contains("too large") { return .headerTooLarge }
        switch opensslReasonCode(in: sentence) {
        // SSL_R_HTTP_REQUEST, SSL_R_WRONG_VERSION_NUMBER: the first bytes are no TLS record.
        case 156?, 267?: return .notTLS
        // SSL_AD_REASON_OFFSET, before the number of an alert that the peer sent.
        case let reason? where (1_001..<1_256).contains(reason): return failure(alert: reason - 1_000)
        default: return nil
        }
    }

    /// Returns the reason in the first OpenSSL error number of a message, such as `error:0A00010B:`.
    private static func opensslReasonCode(in sentence: String) -> Int? {
        guard let place = sentence.firstRange(of: "error:") else { return nil }
        let digits = sentence[place.upperBound...].prefix { $0 != ":" }
        guard digits.count == 8, let number = UInt32(digits, radix: 16) else { return nil }
        return Int(number & 0xfff)
    }

    /// Returns the failure for an alert; nil for close_notify and user_canceled, which are no errors. Those by which a
    /// server rejects a client certificate, or demands one, are `clientCertificateRefused`: RFC 8446, section 6.2.
    private static func failure(alert: Int) -> TransferFailure? {
        switch alert {
        case 0, 90: nil
        case 42...46, 48, 49, 116: .clientCertificateRefused
        default: .tlsAlert(alert)
        }
    }
}

/// Reason why a proxy opened no connection to the server.
public enum ProxyFailure: Hashable, Sendable {
    /// The status of an HTTP proxy's response to CONNECT.
    case status(Int)
    /// The reply of a SOCKS 5 proxy: RFC 1928, section 6.
    case socksReply(Reply)
    /// The request was rejected or failed: reply 91 of a SOCKS 4 proxy, which names no reason.
    case rejected
    /// A SOCKS 4 proxy requires another user: replies 92 and 93.
    case userRefused
    /// The proxy refused user and password, or accepts none.
    case credentialsRefused
    /// The proxy offers no method of authentication that is possible here.
    case methodRefused
    /// The host name, user or password is longer than 255 bytes.
    case hostOrCredentialsTooLong
    /// The proxy closed the connection.
    case closed
    /// The answer is not one of a SOCKS proxy of this version.
    case malformed

    /// Replies of a SOCKS 5 proxy.
    public enum Reply: Int, Sendable {
        case generalFailure = 1
        case notAllowed
        case networkUnreachable
        case hostUnreachable
        case refused
        case expired
        case commandUnsupported
        case addressUnsupported
        /// A number without a meaning.
        case unassigned
    }

    /// Maps the detail of CURLE_PROXY.
    init(_ code: CURLproxycode) {
        self =
            switch code {
            case CURLPX_REPLY_GENERAL_SERVER_FAILURE: .socksReply(.generalFailure)
            case CURLPX_REPLY_NOT_ALLOWED: .socksReply(.notAllowed)
            case CURLPX_REPLY_NETWORK_UNREACHABLE: .socksReply(.networkUnreachable)
            case CURLPX_REPLY_HOST_UNREACHABLE: .socksReply(.hostUnreachable)
            case CURLPX_REPLY_CONNECTION_REFUSED: .socksReply(.refused)
            case CURLPX_REPLY_TTL_EXPIRED: .socksReply(.expired)
            case CURLPX_REPLY_COMMAND_NOT_SUPPORTED: .socksReply(.commandUnsupported)
            case CURLPX_REPLY_ADDRESS_TYPE_NOT_SUPPORTED: .socksReply(.addressUnsupported)
            case CURLPX_REPLY_UNASSIGNED: .socksReply(.unassigned)
            case CURLPX_REQUEST_FAILED, CURLPX_UNKNOWN_FAIL: .rejected
            case CURLPX_IDENTD, CURLPX_IDENTD_DIFFER: .userRefused
            case CURLPX_USER_REJECTED: .credentialsRefused
            case CURLPX_NO_AUTH: .methodRefused
            case CURLPX_LONG_HOSTNAME, CURLPX_LONG_PASSWD, CURLPX_LONG_USER: .hostOrCredentialsTooLong
            case CURLPX_BAD_VERSION, CURLPX_BAD_ADDRESS_TYPE, CURLPX_UNKNOWN_MODE: .malformed
            default: .closed
            }
    }
}

/// Failure to set up libcurl or to start a transfer. A transfer that fails after its start ends with a
/// `TransferFailure` instead.
public struct CurlError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// libcurl is missing, or lacks a function.
        public static let libraryNotLoaded = Code(name: "not loaded")
        /// libcurl returned no handle, because memory is exhausted.
        public static let handleCreationFailed = Code(name: "no handle")
        /// libcurl rejected the value of an option.
        public static let optionRefused = Code(name: "option refused")
        /// The name or value of a header field would break its line.
        public static let badHeaderField = Code(name: "bad header field")
        /// The multi handle rejected the transfer.
        public static let transferNotAdded = Code(name: "not added")
    }

    public let code: Code
    /// libcurl's code (CURLcode or CURLMcode); 0 without one.
    public let underlying: Int

    /// Message of the dynamic linker; nil if it is not involved.
    let linkerMessage: String?

    /// Contains no text from a peer or URL.
    public var description: String { "libcurl: \(code.name) (\(linkerMessage ?? String(underlying)))" }

    init(_ code: Code, underlying: Int = 0, detail: String? = nil) {
        self.code = code
        self.underlying = underlying
        self.linkerMessage = detail
    }
}
