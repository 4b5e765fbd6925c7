internal import EarshotHTTP

/// What a worker is told at its start.
public struct WorkerOptions: Sendable {
    /// The path of the broker's socket `work`, such as `/run/user/1000/earshot/work`.
    public var workPath: String
    /// Transfers at once, 1 to 10,000, until the broker wishes for another number.
    public var slots: Int
    /// Transfers at once at most, whatever the broker wishes: what the process has descriptors for.
    public var mostSlots = 10_000
    /// Hexadecimal text that proves to the broker whose child this is; nil for none.
    public var secret: String?
    /// The process this one must not outlive; nil to live on its own.
    public var parentPid: Int32?
    /// What is said in `User-Agent` when the request says nothing.
    public var userAgent = "earshot/0.1"
    /// Numeric addresses of name servers, each with an optional `:port`; nil for those of the system.
    public var dnsServers: [String]?
    /// What the environment says about proxies, for jobs that say nothing.
    var proxies = ProxyRule { _ in nil }
    /// A file of certificates to trust instead of the system's.
    public var caFile: String?
    /// A file to which the secrets of TLS connections are appended; nil for none, whatever the environment says.
    public var tlsKeyLog: String?

    /// Whether text is the numeric address of a name server, with an optional `:port` of 1 to 65535.
    public static func isNameServer(_ text: String) -> Bool {
        if IPAddress(text) != nil { return true }
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            return text.hasPrefix("[") && text.hasSuffix("]") && IPAddress(String(text.dropFirst().dropLast())) != nil
        }
        var host = text[..<colon]
        if host.hasPrefix("[") {
            guard host.hasSuffix("]"), host.contains(":") else { return false }
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            return false
        }
        return IPAddress(String(host)) != nil
    }

    public init(workPath: String, slots: Int) {
        self.workPath = workPath
        self.slots = slots
    }
}
