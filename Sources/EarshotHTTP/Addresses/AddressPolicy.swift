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
/// An IPv4 address embedded in an IPv6 address is checked as well, in all forms of `IPv6Address.embeddedIPv4Addresses`;
/// both must be allowed. A mapped address (`::ffff:a.b.c.d`) is checked only as the IPv4 address.
public struct AddressPolicy: Hashable, Sendable {
    /// Policy that allows every address.
    public static let allowAll = AddressPolicy()

    /// Policy that allows no address.
    public static let denyAll = AddressPolicy(
        [IPAddress.v4(IPv4Address(value: 0)), .v6(IPv6Address(highBits: 0, lowBits: 0))].map {
            AddressRule(.network(IPNetwork(truncating: $0, prefixLength: 0)), isAllowing: false)
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
        let hostRule = Self.firstRule(in: hostRules) { rule in
            if case .host(let pattern) = rule.subject { pattern.matches(name) } else { false }
        }
        var allowing: AddressRule?
        for candidate in Self.addressesToCheck(address) {
            let networkRule = Self.firstRule(in: networkRules) { rule in
                if case .network(let network) = rule.subject { network.contains(candidate) } else { false }
            }
            guard let rule = Self.prevailingRule(host: hostRule, network: networkRule) else { continue }
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
            if let mapped = v6.mappedIPv4 { return [.v4(mapped)] }
            return [address] + v6.embeddedIPv4Addresses.map { .v4($0) }
        }
    }

    private static func firstRule(in rules: [AddressRule], matching: (AddressRule) -> Bool) -> AddressRule? {
        var found: AddressRule?
        for rule in rules where matching(rule) {
            if let best = found, !rule.precedes(best) { continue }
            found = rule
        }
        return found
    }

    private static func prevailingRule(host: AddressRule?, network: AddressRule?) -> AddressRule? {
        guard let host, let network else { return host ?? network }
        if host.breadth != network.breadth { return host.breadth > network.breadth ? host : network }
        return host.isAllowing ? network : host
    }
}

extension AddressPolicy {
    /// Preset that permits only globally reachable addresses: no loopback, private, multicast or other special-purpose
    /// address.
    public static let publicOnly = AddressPolicy(publicOnlyRules)

    /// Rules that deny `specialPurposeNetworks`.
    static let publicOnlyRules: [AddressRule] = specialPurposeNetworks.compactMap { text in
        (try? IPNetwork(text)).map { AddressRule(.network($0), isAllowing: false, isPreset: true) }
    }

    /// Networks of the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates) that are not
    /// "globally reachable" or belong to one protocol, and the two multicast blocks.
    ///
    /// `::ffff:0:0/96`, `64:ff9b::/96` and `2002::/16` are absent, because the embedded IPv4 address is checked
    /// instead.
    static let specialPurposeNetworks = [
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

/// Text of an address policy, as the setting `address-policy` and the message LIMITS have it.
extension AddressPolicy {
    /// Parses rules separated by line feeds or commas: `allow 10.0.0.0/8`, `deny *.internal`, and at most one preset,
    /// `public-only` or `all`. `#` begins a comment.
    public init(_ text: String) throws(ParseError) {
        var rules: [AddressRule] = []
        var preset: AddressPreset?
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let statement = line.prefix { $0 != "#" }
            for part in statement.split(separator: ",") {
                let words = part.split { $0 == " " || $0 == "\t" }.map(String.init)
                guard let verb = words.first else { continue }
                func fail(_ code: ParseError.Code) -> ParseError { ParseError(code: code, line: index + 1) }
                if words.count == 1, let named = AddressPreset(rawValue: verb) {
                    guard preset == nil || preset == named else { throw fail(.twoPresets) }
                    preset = named
                    continue
                }
                switch (verb, words.count) {
                case ("allow", 2), ("deny", 2):
                    guard rules.count < HTTPLimits.addressRules else { throw fail(.tooManyRules) }
                    do {
                        rules.append(AddressRule(try AddressRule.Subject(words[1]), isAllowing: verb == "allow"))
                    } catch {
                        throw fail(error)
                    }
                default: throw fail(.unknownRule)
                }
            }
        }
        self.init(rules + (preset?.rules ?? []))
    }

    /// Error in the text of a policy.
    public struct ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Kinds of errors.
        public enum Code: Error, Hashable, Sendable {
            /// Neither `allow` nor `deny` followed by one word, nor a preset.
            case unknownRule
            /// Neither a network, an address nor a host pattern.
            case invalidSubject
            /// An address with host bits set; contains the network that may be meant.
            case nonzeroHostBits(IPNetwork)
            /// Both presets.
            case twoPresets
            /// More than `HTTPLimits.addressRules`.
            case tooManyRules
        }

        public let code: Code

        /// Number of the faulty line, from 1.
        public let line: Int

        /// Message for the user, with the remedy.
        public var description: String {
            switch code {
            case .unknownRule:
                "Line \(line): write allow or deny and a network or host pattern, or public-only, or all."
            case .invalidSubject:
                """
                Line \(line): write a network (10.0.0.0/8, 2001:db8::/32), an address, a host (example.org), the hosts \
                below one (*.example.org), or *.
                """
            case .nonzeroHostBits(let network):
                "Line \(line): the address is inside a network; write \(network), or the address without a slash."
            case .twoPresets: "Line \(line): public-only and all exclude each other."
            case .tooManyRules: "Line \(line): there are more than \(HTTPLimits.addressRules) rules."
            }
        }
    }
}

extension AddressRule.Subject: CustomStringConvertible {
    /// Parses a network, an address or a host pattern.
    public init(_ word: String) throws(AddressPolicy.ParseError.Code) {
        do {
            self = .network(try IPNetwork(word))
        } catch {
            switch error {
            case .nonzeroHostBits(let network): throw .nonzeroHostBits(network)
            case .notANetwork:
                guard let pattern = HostPattern(word) else { throw .invalidSubject }
                self = .host(pattern)
            }
        }
    }

    /// Normalized text of the subject.
    public var description: String {
        switch self {
        case .network(let network): network.description
        case .host(let pattern): pattern.description
        }
    }
}
