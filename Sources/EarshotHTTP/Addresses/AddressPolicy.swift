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

    /// Returns the addresses that must all be allowed.
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
