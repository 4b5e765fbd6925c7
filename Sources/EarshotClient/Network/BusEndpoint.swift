internal import EarshotWire
internal import ZeroMQ

/// Address of a bus: a socket of this machine, or a tcp address with the keys of both ends.
public struct BusEndpoint: Hashable, Sendable, CustomStringConvertible {
    enum Kind: Hashable {
        /// Path of a Unix socket.
        case local(String)
        case remote(NetworkAddress, BusKey, serverKey: String)
    }

    let kind: Kind

    /// Selects a bus of this machine by the path of its socket.
    init(socket path: String) { kind = .local(path) }

    /// Selects the bus of a runtime folder.
    package init(_ folder: RuntimeFolder) { self.init(socket: folder.busSocketPath) }

    /// Selects a bus on a network. Both ends prove their keys, and all messages are encrypted (CURVE).
    ///
    /// - Parameters:
    ///   - address: `tcp://HOST:PORT`, with a host name, an IPv4 address or an IPv6 address in brackets.
    ///   - key: key pair of this client, which the bus must have authorized.
    ///   - serverKey: public key of the bus: 40 characters, or the path of a file with a line `public-key = "…"`.
    /// - Throws: `ClientError` for an invalid address or key, or an unreadable file.
    public init(_ address: String, key: BusKey, serverKey: String) throws(ClientError) {
        guard let parsed = NetworkAddress(address) else {
            throw ClientError(
                .invalidRequest,
                "\(address) is no address of a bus: use tcp://HOST:PORT, such as tcp://example.org:5765")
        }
        kind = .remote(parsed, key, serverKey: try BusKey.readServerKey(serverKey))
    }

    /// Selects several buses with one key file.
    ///
    /// - Parameters:
    ///   - addresses: addresses in the order of preference.
    ///   - keyFile: path of the client's key file; nil if there is none.
    ///   - serverKeys: server key of all buses, or one for each.
    /// - Throws: `ClientError` if a part is missing or invalid.
    public static func list(
        _ addresses: [String], keyFile: String?, serverKeys: [String]
    ) throws(ClientError) -> [BusEndpoint] {
        guard let keyFile else {
            throw ClientError(
                .key, "a bus on a network needs the key of this client: create one with `earshot key new NAME`")
        }
        guard serverKeys.count == 1 || serverKeys.count == addresses.count else {
            throw ClientError(
                .key,
                "buses: \(addresses.count), server keys: \(serverKeys.count); give one key for all, or one for each; `earshot key show` prints it"
            )
        }
        let key = try BusKey(file: keyFile)
        var endpoints: [BusEndpoint] = []
        for (index, address) in addresses.enumerated() {
            endpoints.append(
                try BusEndpoint(address, key: key, serverKey: serverKeys[serverKeys.count == 1 ? 0 : index]))
        }
        return endpoints
    }

    /// Returns the buses of the environment: addresses in `EARSHOT_BUS`, the path of the key file in `EARSHOT_BUS_KEY`,
    /// and server keys or their files in `EARSHOT_SERVER_KEY`. Commas or spaces separate several.
    ///
    /// - Returns: nil without `EARSHOT_BUS`.
    /// - Throws: `ClientError` if a variable is missing or invalid.
    public static func inEnvironment() throws(ClientError) -> [BusEndpoint]? {
        guard let addresses = Environment.value("EARSHOT_BUS") else { return nil }
        return try list(
            words(addresses), keyFile: Environment.value("EARSHOT_BUS_KEY"),
            serverKeys: Environment.value("EARSHOT_SERVER_KEY").map(words) ?? [])
    }

    /// Splits the value of a variable. Keys contain neither commas nor spaces.
    public static func words(_ text: String) -> [String] {
        text.split { $0 == "," || $0.isWhitespace }.map { String($0) }
    }

    /// The address, or the path of the socket.
    public var description: String {
        switch kind {
        case .local(let path): path
        case .remote(let address, _, _): address.description
        }
    }

    var isRemote: Bool { if case .remote = kind { true } else { false } }
}

/// Host and port of a tcp address, which `BusEndpoint` parses and `CurveLink` connects to.
struct NetworkAddress: Hashable, Sendable, CustomStringConvertible {
    /// Maximum bytes of a host name in DNS.
    private static let maximumHostBytes = 253

    /// Host name or address; that of IPv6 in brackets.
    let host: String
    let port: UInt16

    /// Parses `tcp://HOST:PORT`; nil for any other text.
    init?(_ text: String) {
        let scheme = "tcp://"
        guard text.hasPrefix(scheme), let colon = text.lastIndex(of: ":") else { return nil }
        let start = text.index(text.startIndex, offsetBy: scheme.count)
        guard start < colon else { return nil }
        guard let port: UInt16 = Decimal.parse(text[text.index(after: colon)...]), port > 0 else { return nil }
        host = String(text[start..<colon])
        self.port = port
        guard host.utf8.count <= Self.maximumHostBytes, isNameOrIPv4 || isIPv6 else { return nil }
    }

    /// Whether the host is an address of IPv6 in brackets, possibly with a zone.
    var isIPv6: Bool {
        guard host.hasPrefix("["), host.hasSuffix("]"), host.contains(":") else { return false }
        return host.utf8.dropFirst().dropLast().allSatisfy { byte in
            byte.isLetter || byte.isDigit || ":.%-_~".utf8.contains(byte)
        }
    }

    /// Whether the host has the form of a name or of an address of IPv4.
    private var isNameOrIPv4: Bool {
        !host.isEmpty && host.utf8.allSatisfy { $0.isLetter || $0.isDigit || ".-_".utf8.contains($0) }
    }

    var description: String { "tcp://\(host):\(port)" }
}
