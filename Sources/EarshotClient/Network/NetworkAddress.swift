internal import EarshotWire

/// Host and port of a tcp address, which `BusEndpoint` parses and `CurveLink` connects to.
struct NetworkAddress: Hashable, Sendable, CustomStringConvertible {
    /// Maximum bytes of a host name in DNS.
    private static let hostBytes = 253

    /// Host name or address; that of IPv6 in brackets.
    let host: String
    let port: UInt16

    /// Parses `tcp://HOST:PORT`; nil for any other text.
    init?(_ text: String) {
        let scheme = "tcp://"
        guard text.hasPrefix(scheme), let colon = text.lastIndex(of: ":") else { return nil }
        let start = text.index(text.startIndex, offsetBy: scheme.count)
        guard start < colon else { return nil }
        guard let port: UInt16 = Decimal.number(text[text.index(after: colon)...]), port > 0 else { return nil }
        host = String(text[start..<colon])
        self.port = port
        guard host.utf8.count <= Self.hostBytes, isNamed || isIPv6 else { return nil }
    }

    /// Whether the host is an address of IPv6 in brackets, possibly with a zone.
    var isIPv6: Bool {
        guard host.hasPrefix("["), host.hasSuffix("]"), host.contains(":") else { return false }
        return host.utf8.dropFirst().dropLast().allSatisfy { byte in
            byte.isLetter || byte.isDigit || ":.%-_~".utf8.contains(byte)
        }
    }

    /// Whether the host has the form of a name or of an address of IPv4.
    private var isNamed: Bool {
        !host.isEmpty && host.utf8.allSatisfy { $0.isLetter || $0.isDigit || ".-_".utf8.contains($0) }
    }

    var description: String { "tcp://\(host):\(port)" }
}
