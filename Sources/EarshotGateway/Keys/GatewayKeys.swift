internal import EarshotWire

/// Keys of a gateway: its own secret key, and those of its clients.
public struct GatewayKeys: Equatable, Sendable {
    /// Maximum number of clients: more than an administrator maintains.
    public static let mostClients = 10_000

    /// Secret key of the bus, 40 characters of Z85.
    public let secretKey: String
    private let clients: [String: ClientKey]

    /// - Parameter clients: clients with different names and different public keys.
    public init(secretKey: String, clients: [ClientKey]) {
        self.secretKey = secretKey
        self.clients = Dictionary(clients.map { ($0.publicKey, $0) }) { first, _ in first }
    }

    /// Number of clients.
    public var count: Int { clients.count }

    /// Returns the client of a public key, if it is accepted at a time in seconds since 1970.
    func client(_ publicKey: String, at seconds: Int64) -> ClientKey? {
        guard let client = clients[publicKey], client.isValid(at: seconds) else { return nil }
        return client
    }

    /// Returns the principals of the clients that are accepted at a time in seconds since 1970. Workers have no sessions.
    func principals(at seconds: Int64) -> [PrincipalName] {
        clients.values.filter { $0.role != .worker && $0.isValid(at: seconds) }.map(\.principal)
    }

    /// The next time after `seconds` at which a key expires; nil for none.
    func nextExpiry(after seconds: Int64) -> Int64? {
        clients.values.compactMap { $0.expiry?.seconds }.filter { $0 > seconds }.min()
    }
}
