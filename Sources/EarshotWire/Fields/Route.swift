/// By which way a request goes to its server, where that is not the usual one; the same fields in FETCH and in JOB.
public struct Route: Hashable, Sendable {
    /// Stands for no proxy, whatever the environment says.
    public static let noProxy = "none"
    /// Schemes a proxy may have.
    static let proxySchemes = ["http", "https", "socks5"]

    /// What is said; nil for nothing, as with nearly all, so that a request carries no more than a reference.
    private var particulars: Particulars?

    private final class Particulars: Hashable, Sendable {
        let values: Values

        init(_ values: Values) {
            self.values = values
        }

        static func == (left: Particulars, right: Particulars) -> Bool { left.values == right.values }

        func hash(into hasher: inout Hasher) { hasher.combine(values) }
    }

    private struct Values: Hashable, Sendable {
        var proxy: String?
        var caFile: String?
        var clientCertificate: String?
        var clientKey: String?
    }

    /// A proxy's URL, user information included, or `noProxy`; nil for what the environment of the workers says.
    public var proxy: String? {
        get { particulars?.values.proxy }
        set { values.proxy = newValue }
    }

    /// Absolute path of the certificates to trust instead of the system's, in PEM.
    public var caFile: String? {
        get { particulars?.values.caFile }
        set { values.caFile = newValue }
    }

    /// Absolute path of the client's certificate, in PEM.
    public var clientCertificate: String? {
        get { particulars?.values.clientCertificate }
        set { values.clientCertificate = newValue }
    }

    /// Absolute path of its key; nil if that is in the same file.
    public var clientKey: String? {
        get { particulars?.values.clientKey }
        set { values.clientKey = newValue }
    }

    private var values: Values {
        get { particulars?.values ?? Values() }
        set { particulars = newValue == Values() ? nil : Particulars(newValue) }
    }

    public init() {}

    /// Whether nothing is said.
    public var isUsual: Bool { particulars == nil }

    /// All of it in an order, for keys: one line each, with the name of the field; empty for the usual one.
    public var canonical: String {
        guard !isUsual else { return "" }
        var writer = HeadWriter("")
        write(to: &writer)
        return String(decoding: writer.finished(), as: UTF8.self)
    }

    /// Names of the fields in the order in which they are written.
    static let fieldNames = ["proxy", "ca-file", "client-certificate", "client-key"]

    /// Takes a field of these names; false for others.
    mutating func set(_ name: HeadText, _ value: HeadText) throws(WireError) -> Bool {
        switch name {
        case "proxy": proxy = try Self.proxy(value)
        case "ca-file": caFile = try Self.path(value.string)
        case "client-certificate": clientCertificate = try Self.path(value.string)
        case "client-key": clientKey = try Self.path(value.string)
        default: return false
        }
        return true
    }

    func write(to writer: inout HeadWriter) {
        guard !isUsual else { return }
        writer.field("proxy", proxy)
        writer.field("ca-file", caFile)
        writer.field("client-certificate", clientCertificate)
        writer.field("client-key", clientKey)
    }

    /// Whether the text can be a proxy.
    public static func isProxy(_ text: String) -> Bool {
        guard text != noProxy else { return true }
        guard text.utf8.count <= WireLimits.urlBytes, text.utf8.allSatisfy(Ascii.isVisible) else { return false }
        return proxySchemes.contains { scheme in
            text.hasPrefix(scheme + "://") && text.utf8.count > scheme.utf8.count + 3
        }
    }

    /// Bounds the length. Whether it is a URL is judged by the broker, as with the URL of the request.
    private static func proxy(_ text: HeadText) throws(WireError) -> String {
        guard text.bytes.count <= WireLimits.urlBytes else {
            throw WireError(.limit, "proxy is longer than \(WireLimits.urlBytes) bytes")
        }
        return text.string
    }

    private static func path(_ text: String) throws(WireError) -> String {
        guard text.utf8.first == Ascii.slash, text.utf8.count <= WireLimits.pathBytes else {
            throw WireError(.badMessage, "a file is an absolute path of at most \(WireLimits.pathBytes) bytes")
        }
        return text
    }
}
