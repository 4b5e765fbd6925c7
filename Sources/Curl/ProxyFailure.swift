internal import CLibCurl

/// Reason why a proxy opened no connection to the server.
public enum ProxyFailure: Hashable, Sendable {
    /// The status of an HTTP proxy's response to CONNECT.
    case status(Int)
    /// The reply of a SOCKS 5 proxy: RFC 1928, section 6.
    case reply(Reply)
    /// The request was rejected or failed: reply 91 of a SOCKS 4 proxy, which names no reason.
    case rejected
    /// A SOCKS 4 proxy requires another user: replies 92 and 93.
    case userRefused
    /// The proxy refused user and password, or accepts none.
    case credentialsRefused
    /// The proxy offers no method of authentication that is possible here.
    case methodRefused
    /// The host name, user or password is longer than 255 bytes.
    case tooLong
    /// The proxy closed the connection.
    case closed
    /// The answer is not one of a SOCKS proxy of this version.
    case malformed

    /// Replies of a SOCKS 5 proxy.
    public enum Reply: Int, Sendable {
        case failure = 1
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
            case CURLPX_REPLY_GENERAL_SERVER_FAILURE: .reply(.failure)
            case CURLPX_REPLY_NOT_ALLOWED: .reply(.notAllowed)
            case CURLPX_REPLY_NETWORK_UNREACHABLE: .reply(.networkUnreachable)
            case CURLPX_REPLY_HOST_UNREACHABLE: .reply(.hostUnreachable)
            case CURLPX_REPLY_CONNECTION_REFUSED: .reply(.refused)
            case CURLPX_REPLY_TTL_EXPIRED: .reply(.expired)
            case CURLPX_REPLY_COMMAND_NOT_SUPPORTED: .reply(.commandUnsupported)
            case CURLPX_REPLY_ADDRESS_TYPE_NOT_SUPPORTED: .reply(.addressUnsupported)
            case CURLPX_REPLY_UNASSIGNED: .reply(.unassigned)
            case CURLPX_REQUEST_FAILED, CURLPX_UNKNOWN_FAIL: .rejected
            case CURLPX_IDENTD, CURLPX_IDENTD_DIFFER: .userRefused
            case CURLPX_USER_REJECTED: .credentialsRefused
            case CURLPX_NO_AUTH: .methodRefused
            case CURLPX_LONG_HOSTNAME, CURLPX_LONG_PASSWD, CURLPX_LONG_USER: .tooLong
            case CURLPX_BAD_VERSION, CURLPX_BAD_ADDRESS_TYPE, CURLPX_UNKNOWN_MODE: .malformed
            default: .closed
            }
    }
}
