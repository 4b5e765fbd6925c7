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
