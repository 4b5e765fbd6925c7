/// Where connections may go: rules for networks and for host names.
///
/// It is to be asked about each address that is connected to, at each hop: what a name means can change between two
/// questions. Of all rules for the host, and of all for the address, the most specific one counts: the longer name or
/// network, of equals the one that somebody wrote before that of a preset, then the one that denies. Of these two the
/// one for a single host or address goes before one for some, and that before one for all; of equals the one that
/// denies. So, with `public-only`, `allow intranet.example` opens that host wherever it is, and `allow 10.0.0.0/8` that
/// network to all names, but `allow *.example` no inner address: whoever may add a name there would choose it. What no
/// rule is for is allowed.
///
/// An IPv4 address in an IPv6 address is judged too, in all forms that `IPv6Address.embedded` knows: the whole is
/// allowed if both are. A mapped one (`::ffff:a.b.c.d`) is judged as the IPv4 address alone.
public struct AddressPolicy: Hashable, Sendable {
    /// All addresses may be connected to.
    public static let all = AddressPolicy()

    /// No address may be connected to.
    public static let nothing = AddressPolicy(
        [IPAddress.v4(IPv4Address(value: 0)), .v6(IPv6Address(high: 0, low: 0))].map {
            AddressRule(.network(IPNetwork(truncating: $0, prefix: 0)), isAllowing: false)
        })

    private let hostRules: [AddressRule]
    private let networkRules: [AddressRule]
    /// Whether something is denied.
    public let isRestricting: Bool

    /// The policy with these rules. Their order does not matter.
    public init(_ rules: [AddressRule] = []) {
        var hostRules: [AddressRule] = []
        var networkRules: [AddressRule] = []
        for rule in rules {
            switch rule.subject {
            case .host: hostRules.append(rule)
            case .network: networkRules.append(rule)
            }
        }
        self.hostRules = hostRules
        self.networkRules = networkRules
        isRestricting = rules.contains { !$0.isAllowing }
    }

    /// Those for hosts, then those for networks.
    public var rules: [AddressRule] { hostRules + networkRules }

    /// Judges a connection. O(rules).
    ///
    /// - Parameters:
    ///   - host: That of the URL, in any case, with or without a dot at its end; a name or an address.
    ///   - address: The one that the connection would go to.
    public func verdict(host: String, address: IPAddress) -> AddressVerdict {
        let lower = host.lowercased()
        let name = lower.utf8.last == UInt8(ascii: ".") ? String(lower.dropLast()) : lower
        let hostRule = Self.first(hostRules) { rule in
            if case .host(let pattern) = rule.subject { pattern.matches(name) } else { false }
        }
        var allowing: AddressRule?
        for candidate in Self.judged(address) {
            let networkRule = Self.first(networkRules) { rule in
                if case .network(let network) = rule.subject { network.contains(candidate) } else { false }
            }
            guard let rule = Self.stronger(hostRule, networkRule) else { continue }
            guard rule.isAllowing else { return .denied(by: rule) }
            allowing = allowing ?? rule
        }
        return .allowed(by: allowing)
    }

    /// The addresses that all have to be allowed.
    private static func judged(_ address: IPAddress) -> [IPAddress] {
        switch address {
        case .v4: return [address]
        case .v6(let v6):
            if let mapped = v6.mapped { return [.v4(mapped)] }
            return [address] + v6.embedded.map { .v4($0) }
        }
    }

    private static func first(_ rules: [AddressRule], matches: (AddressRule) -> Bool) -> AddressRule? {
        var found: AddressRule?
        for rule in rules where matches(rule) {
            if let best = found, !rule.precedes(best) { continue }
            found = rule
        }
        return found
    }

    private static func stronger(_ host: AddressRule?, _ network: AddressRule?) -> AddressRule? {
        guard let host, let network else { return host ?? network }
        if host.breadth != network.breadth { return host.breadth > network.breadth ? host : network }
        return host.isAllowing ? network : host
    }
}
