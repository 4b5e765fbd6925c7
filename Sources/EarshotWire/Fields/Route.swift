/// Proxy, certificates and verification of a request's connection, the decoding of its body, and the delivery of error
/// pages. FETCH and JOB share these fields.
public struct Route: Hashable, Sendable {
    /// Value that disables proxies, including those of the environment.
    public static let noProxy = "none"

    /// Nil for the default route. Nearly all requests have it and so need only this reference.
    private var rareFields: RareFields?

    private final class RareFields: Hashable, Sendable {
        let values: Values

        init(_ values: Values) {
            self.values = values
        }

        static func == (left: RareFields, right: RareFields) -> Bool { left.values == right.values }

        func hash(into hasher: inout Hasher) { hasher.combine(values) }
    }

    private struct Values: Hashable, Sendable {
        var proxy: String?
        var caFile: String?
        var clientCertificate: String?
        var clientKey: String?
        var verifiesServer = true
        var decodesBody = true
        var deliversErrorResponses = false
    }

    /// URL of the proxy including user information, or `noProxy`; nil for the environment of the workers.
    public var proxy: String? {
        get { rareFields?.values.proxy }
        set { values.proxy = newValue }
    }

    /// Absolute path of a PEM file of trusted certificates that replace the system's; nil for the system's.
    public var caFile: String? {
        get { rareFields?.values.caFile }
        set { values.caFile = newValue }
    }

    /// Absolute path of the client certificate, in PEM.
    public var clientCertificate: String? {
        get { rareFields?.values.clientCertificate }
        set { values.clientCertificate = newValue }
    }

    /// Absolute path of the client's key; nil if the certificate file contains it.
    public var clientKey: String? {
        get { rareFields?.values.clientKey }
        set { values.clientKey = newValue }
    }

    /// Whether the server must present a trusted certificate for its name. A proxy must in any case.
    public var verifiesServer: Bool {
        get { rareFields?.values.verifiesServer ?? true }
        set { values.verifiesServer = newValue }
    }

    /// Whether the worker decodes the body. If not, it requests the body without a content coding, and keeps one
    /// that the server applies nonetheless.
    public var decodesBody: Bool {
        get { rareFields?.values.decodesBody ?? true }
        set { values.decodesBody = newValue }
    }

    /// Whether a response with an error status is a result with its whole body. If not, it is a failure, and its body
    /// is an error page of bounded size.
    public var deliversErrorResponses: Bool {
        get { rareFields?.values.deliversErrorResponses ?? false }
        set { values.deliversErrorResponses = newValue }
    }

    private var values: Values {
        get { rareFields?.values ?? Values() }
        set { rareFields = newValue == Values() ? nil : RareFields(newValue) }
    }

    public init() {}

    /// Paths of its files.
    public var filePaths: [String] { [caFile, clientCertificate, clientKey].compactMap(\.self) }

    /// The fields that concern the connection.
    public var connectionRoute: Route {
        guard !decodesBody || deliversErrorResponses else { return self }
        var route = self
        route.decodesBody = true
        route.deliversErrorResponses = false
        return route
    }

    /// Whether the route is the default.
    public var isDefault: Bool { rareFields == nil }

    /// Canonical text for coalescing keys, one line for each field; empty for the default route.
    public var canonicalText: String {
        guard !isDefault else { return "" }
        var writer = HeadWriter("")
        write(to: &writer)
        return String(decoding: writer.finished(), as: UTF8.self)
    }

    /// Names of the fields, in the order in which they are written.
    static let fieldNames = ["proxy", "ca-file", "client-certificate", "client-key", "verify", "decode", "errors"]

    /// Sets the field of this name. Returns false for other names.
    mutating func readField(_ name: HeadText, _ value: HeadText) throws(WireError) -> Bool {
        switch name {
        case "proxy": proxy = try Self.checkedProxy(value)
        case "ca-file": caFile = try Self.checkedPath(value.string)
        case "client-certificate": clientCertificate = try Self.checkedPath(value.string)
        case "client-key": clientKey = try Self.checkedPath(value.string)
        case "verify": verifiesServer = try HeadReader.parseFlag(value, named: "verify")
        case "decode": decodesBody = try HeadReader.parseFlag(value, named: "decode")
        case "errors": deliversErrorResponses = try HeadReader.parseErrorDelivery(value)
        default: return false
        }
        return true
    }

    func write(to writer: inout HeadWriter) {
        guard !isDefault else { return }
        writer.writeField("proxy", proxy)
        writer.writeField("ca-file", caFile)
        writer.writeField("client-certificate", clientCertificate)
        writer.writeField("client-key", clientKey)
        writer.writeField("verify", if: !verifiesServer, "no")
        writer.writeField("decode", if: !decodesBody, "no")
        writer.writeField("errors", if: deliversErrorResponses, "deliver")
    }

    /// Checks only the length. The broker parses the URL, as with the URL of the request.
    private static func checkedProxy(_ text: HeadText) throws(WireError) -> String {
        guard text.bytes.count <= WireLimits.urlBytes else {
            throw WireError(.limitExceeded, "proxy is longer than \(WireLimits.urlBytes) bytes")
        }
        return text.string
    }

    static func checkedPath(_ text: String) throws(WireError) -> String {
        guard text.utf8.first == Ascii.slash, text.utf8.count <= WireLimits.pathBytes else {
            throw WireError(.badMessage, "a file must be an absolute path of at most \(WireLimits.pathBytes) bytes")
        }
        return text
    }
}
