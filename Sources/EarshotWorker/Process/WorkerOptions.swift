internal import EarshotHTTP

/// Start options of a worker for http and https, which the commands `worker` and `serve` make.
public struct WorkerOptions: Sendable {
    /// The path of the broker's socket `work`, such as `/run/user/1000/earshot/work`.
    public var workPath: String
    /// Number of concurrent transfers, 1 to 10,000, until the broker requests another number.
    public var slots: Int
    /// Maximum number of concurrent transfers that the process has descriptors for. The broker cannot exceed it.
    public var maximumSlots = 10_000
    /// Hexadecimal secret that proves to the broker that this is its supervisor's child; nil for none.
    public var secret: String?
    /// Whether the broker's LIMITS set the level of the log.
    public var followsLogLevel = false
    /// Process ID of the parent, with which this process ends; nil to live independently.
    public var parentPid: Int32?
    /// Default value of `User-Agent`.
    public var userAgent = "earshot/0.1"
    /// Numeric addresses of name servers, each with an optional `:port`; nil for those of the system.
    public var dnsServers: [String]?
    /// Proxies from the environment, for jobs that name none.
    var proxies = ProxyRule { _ in nil }
    /// Certificate file that replaces the system's trusted certificates; nil for the system's.
    public var caFile: String?
    /// File to which the secrets of TLS connections are appended; nil for none. Overrides the environment.
    public var tlsKeyLog: String?

    /// Returns whether `text` is the numeric address of a name server, with an optional `:port` of 1 to 65535.
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
