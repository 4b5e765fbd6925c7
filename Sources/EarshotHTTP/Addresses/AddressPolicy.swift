/// Policy for the destinations of connections: rules for networks and host names.
///
/// It must be checked for each address at each hop, because a name may resolve to another address later.
///
/// 1. The most specific rule that matches the host applies, and the most specific one that matches the address. The
///   longer name or prefix wins. Of equal ones, a user's rule precedes a preset's, and then a denial precedes a
///   permission.
/// 2. Of these two rules, the narrower kind wins: a single host or address, then a group, then everything. Of equal
///   kinds, a denial wins.
/// 3. Without a matching rule the connection is allowed.
///
/// For example, with `public-only`, `allow intranet.example` permits that host at any address, and `allow 10.0.0.0/8`
/// permits that network for all names. `allow *.example` permits no private address, because an administrator of that
/// domain could then choose one.
///
/// An IPv4 address embedded in an IPv6 address is checked as well, in all forms of `IPv6Address.embedded`; both must be
/// allowed. A mapped address (`::ffff:a.b.c.d`) is checked only as the IPv4 address.
public struct AddressPolicy: Hashable, Sendable {
    /// Policy that allows every address.
    public static let all = AddressPolicy()

    /// Policy that allows no address.
    public static let nothing = AddressPolicy(
        [IPAddress.v4(IPv4Address(value: 0)), .v6(IPv6Address(high: 0, low: 0))].map {
            AddressRule(.network(IPNetwork(truncating: $0, prefix: 0)), isAllowing: false)
        })

    private let hostRules: [AddressRule]
    private let networkRules: [AddressRule]
    /// Whether a rule denies anything.
    public let isRestricting: Bool

    /// Creates a policy. The order of the rules is irrelevant.
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

    /// Rules for hosts, then rules for networks.
    public var rules: [AddressRule] { hostRules + networkRules }

    /// Checks a connection. O(rules).
    ///
    /// - Parameters:
    ///   - host: Host of the URL in any case, with or without a trailing dot; a name or an address.
    ///   - address: Destination address of the connection.
    public func verdict(host: String, address: IPAddress) -> AddressVerdict {
        let lower = host.lowercased()
        let name = lower.utf8.last == UInt8(ascii: ".") ? String(lower.dropLast()) : lower
        let hostRule = Self.first(hostRules) { rule in
            if case .host(let pattern) = rule.subject { pattern.matches(name) } else { false }
        }
        var allowing: AddressRule?
        for candidate in Self.addressesToCheck(address) {
            let networkRule = Self.first(networkRules) { rule in
                if case .network(let network) = rule.subject { network.contains(candidate) } else { false }
            }
            guard let rule = Self.stronger(hostRule, networkRule) else { continue }
            guard rule.isAllowing else { return .denied(by: rule) }
            allowing = allowing ?? rule
        }
        return .allowed(by: allowing)
    }

    /// Returns the addresses that must all be allowed.
    private static func addressesToCheck(_ address: IPAddress) -> [IPAddress] {
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

extension AddressPolicy {
    /// Preset that permits only globally reachable addresses: no loopback, private, multicast or other special-purpose
    /// address.
    public static let publicOnly = AddressPolicy(publicOnlyRules)

    /// Rules that deny `specialNetworks`.
    static let publicOnlyRules: [AddressRule] = specialNetworks.compactMap { text in
        (try? IPNetwork(text)).map { AddressRule(.network($0), isAllowing: false, isPreset: true) }
    }

    /// Networks of the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates) that are not
    /// "globally reachable" or belong to one protocol, and the two multicast blocks.
    ///
    /// `::ffff:0:0/96`, `64:ff9b::/96` and `2002::/16` are absent, because the embedded IPv4 address is checked
    /// instead.
    static let specialNetworks = [
        // This network, RFC 791, section 3.2.
        "0.0.0.0/8",
        // Private use, RFC 1918.
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
        // Carrier-grade NAT, RFC 6598.
        "100.64.0.0/10",
        // Loopback, RFC 1122, section 3.2.1.3.
        "127.0.0.0/8",
        // Link-local, RFC 3927; includes the metadata services of clouds.
        "169.254.0.0/16",
        // IETF protocol assignments, RFC 6890, section 2.1.
        "192.0.0.0/24",
        // Documentation, RFC 5737.
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
        // 6to4 relays, deprecated, RFC 7526.
        "192.88.99.0/24",
        // Benchmarking, RFC 2544.
        "198.18.0.0/15",
        // Multicast, RFC 5771.
        "224.0.0.0/4",
        // Reserved, RFC 1112, section 4, and limited broadcast, RFC 919.
        "240.0.0.0/4", "255.255.255.255/32",
        // Unspecified and loopback, RFC 4291.
        "::/128", "::1/128",
        // Local NAT64 prefixes, RFC 8215: only the local network knows the position of the IPv4 address.
        "64:ff9b:1::/48",
        // Discard-only, RFC 6666, and dummy, RFC 9780.
        "100::/64", "100:0:0:1::/64",
        // IETF protocol assignments, RFC 2928: Teredo, benchmarking, ORCHID and others.
        "2001::/23",
        // Documentation, RFC 3849 and RFC 9637.
        "2001:db8::/32", "3fff::/20",
        // Segment routing, RFC 9602.
        "5f00::/16",
        // Unique local, RFC 4193.
        "fc00::/7",
        // Link-local, RFC 4291, and site-local, deprecated, RFC 3879.
        "fe80::/10", "fec0::/10",
        // Multicast, RFC 4291.
        "ff00::/8",
    ]
}

/// Result of checking an address.
public enum AddressVerdict: Hashable, Sendable {
    /// Allowed by a rule, or because no rule matches.
    case allowed(by: AddressRule?)
    /// Denied by a rule.
    case denied(by: AddressRule)

    public var isAllowed: Bool {
        switch self {
        case .allowed: true
        case .denied: false
        }
    }
}

/// Named policy to which rules can be added.
public enum AddressPreset: String, CaseIterable, Sendable {
    /// Allows every address.
    case all
    /// Allows only globally reachable addresses: none of this machine or of a private network.
    case publicOnly = "public-only"

    /// Rules of the preset.
    var rules: [AddressRule] {
        switch self {
        case .all: []
        case .publicOnly: AddressPolicy.publicOnlyRules
        }
    }
}
