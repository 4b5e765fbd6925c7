/// Request of one transfer. Redirects are not followed: a 3xx is an ordinary response.
public struct TransferRequest: Sendable {
    /// Method of the request.
    public enum Method: Hashable, Sendable {
        case get
        case head
        /// Any token. A request that is not repeatable uses a new connection, because libcurl sends a request again if
        /// a reused connection closes without a response.
        case other(String, isRepeatable: Bool)
    }

    /// A request header field.
    public struct HeaderField: Hashable, Sendable {
        /// Name, a token (RFC 9110, section 5.6.2). A space, colon or control character rejects the transfer.
        public let name: String
        /// Value as sent; need not be UTF-8.
        public let value: [UInt8]

        public init(name: String, value: [UInt8]) {
            self.name = name
            self.value = value
        }

        public init(name: String, value: String) {
            self.init(name: name, value: Array(value.utf8))
        }
    }

    /// HTTP version of the request.
    public enum Version: Hashable, Sendable {
        /// HTTP/1.1 only.
        case http1
        /// HTTP/2 if TLS negotiates it, otherwise HTTP/1.1. Only for GET and HEAD, and if `Multi.speaksHTTP2` is true.
        case http2OverTLS
    }

    /// Absolute URL, `http` or `https`.
    public var url: String
    public var method = Method.get
    /// Body to send; nil for none. A GET or HEAD has none.
    public var body: [UInt8]?
    public var headerFields: [HeaderField] = []
    /// Resolved addresses, each as `host:port:address,address`, with IPv6 in brackets (CURLOPT_RESOLVE). Removed after
    /// the last transfer that needs them.
    public var resolveEntries: [String] = []
    /// Value of `User-Agent` unless `headerFields` contains one; empty for none.
    public var userAgent = ""
    /// Value of `Accept-Encoding` unless `headerFields` contains one; empty for none. The sink must decode these
    /// content codings.
    public var acceptEncoding = ""
    /// Time from the start until a connection, including TLS, is ready for the request. Zero selects libcurl's 300 s.
    public var connectTimeout = Duration.zero
    /// URL of a proxy; empty for none. Proxies of the environment are never used.
    public var proxy = ""
    /// File of trusted certificates, instead of the system's. libcurl opens it, and blocks if it is a FIFO without a
    /// writer.
    public var caFile: String?
    /// Trusted certificates in PEM, instead of `caFile` and the system's.
    public var caCertificates: [UInt8]?
    /// Client certificate in PEM.
    public var clientCertificate: [UInt8]?
    /// Private key of the client certificate, in PEM without a passphrase; nil if it is included in
    /// `clientCertificate`.
    public var clientKey: [UInt8]?
    /// Whether the server must present a trusted certificate for its name. libcurl reuses a connection or TLS session
    /// only for requests with the same value. A proxy's certificate is always verified.
    public var verifiesServer = true
    public var version = Version.http1
    /// Whether the request has a connection that serves no other request before or after it. Then it uses HTTP/1.1,
    /// because other requests could join a connection of HTTP/2.
    public var requiresExclusiveConnection = false
}

extension TransferRequest {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(url: String) {
        self.init(url: url, version: .http1)
    }

    /// Creates a request without addresses and times, which are known when the transfer starts.
    public init(
        url: String, method: Method, body: [UInt8]?, headerFields: [HeaderField], userAgent: String,
        acceptEncoding: String, proxy: String, caFile: String?, caCertificates: [UInt8]?,
        clientCertificate: [UInt8]?, clientKey: [UInt8]?, verifiesServer: Bool, version: Version,
        ownsConnection: Bool = false
    ) {
        self.init(
            url: url, method: method, body: body, headerFields: headerFields, resolveEntries: [], userAgent: userAgent,
            acceptEncoding: acceptEncoding, proxy: proxy, caFile: caFile, caCertificates: caCertificates,
            clientCertificate: clientCertificate, clientKey: clientKey, verifiesServer: verifiesServer,
            version: version, requiresExclusiveConnection: ownsConnection)
    }
}
