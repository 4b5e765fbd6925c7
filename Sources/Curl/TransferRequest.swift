/// One transfer as it is asked of libcurl. Redirects are not followed: a 3xx is an answer like any other.
public struct TransferRequest: Sendable {
    /// What is asked of the server.
    public enum Method: Hashable, Sendable {
        case get
        case head
        /// A token. What may not be repeated goes over a connection of its own: over one that was used before, libcurl
        /// sends it a second time if that ends without an answer.
        case other(String, isRepeatable: Bool)
    }

    /// A request header field.
    public struct HeaderField: Hashable, Sendable {
        /// A token (RFC 9110, section 5.6.2); a space, a colon or a control character refuses the transfer.
        public let name: String
        /// As it goes out: a value need not be UTF-8.
        public let value: [UInt8]

        public init(name: String, value: [UInt8]) {
            self.name = name
            self.value = value
        }

        public init(name: String, value: String) {
            self.init(name: name, value: Array(value.utf8))
        }
    }

    /// The HTTP version to speak.
    public enum Version: Hashable, Sendable {
        /// HTTP/1.1 only.
        case http1
        /// HTTP/2 where TLS negotiates it, else HTTP/1.1; for GET and HEAD where `Multi.speaksHTTP2` says so.
        case http2OverTLS
    }

    /// Absolute, `http` or `https`.
    public var url: String
    public var method = Method.get
    /// What is sent, with its length; nil for none. A GET or HEAD has none.
    public var body: [UInt8]?
    public var headerFields: [HeaderField] = []
    /// Addresses found elsewhere, each as `host:port:address,address`, IPv6 in brackets (CURLOPT_RESOLVE). Forgotten with
    /// the last transfer that needs them.
    public var resolve: [String] = []
    /// What `User-Agent` says unless `headerFields` has one; empty for none.
    public var userAgent = ""
    /// The content codings that `Accept-Encoding` names unless `headerFields` has one; empty for none. They are the
    /// sink's to undo.
    public var acceptEncoding = ""
    /// From the start until a connection is ready for the request, TLS included. Zero is libcurl's 300 s.
    public var connectTimeout = Duration.zero
    /// From the start until the last byte. Zero is no limit.
    public var totalTimeout = Duration.zero
    /// A proxy's URL; empty for none. The environment's proxies are never used.
    public var proxy = ""
    /// A file of certificates to trust instead of the system's, opened by libcurl, which waits for a FIFO's writer.
    public var caFile: String?
    /// Certificates to trust instead of those and the system's, in PEM.
    public var caCertificates: [UInt8]?
    /// The certificate to show, in PEM.
    public var clientCertificate: [UInt8]?
    /// Its key, in PEM and without a passphrase; nil if it is beside the certificate.
    public var clientKey: [UInt8]?
    public var version = Version.http1

    public init(url: String) {
        self.url = url
    }
}
