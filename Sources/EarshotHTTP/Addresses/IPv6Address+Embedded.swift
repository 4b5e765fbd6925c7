extension IPv6Address {
    /// IPv4 address of the mapped form `::ffff:a.b.c.d`: RFC 4291, section 2.5.5.2.
    var mapped: IPv4Address? { high == 0 && low >> 32 == 0xffff ? lowIPv4 : nil }

    /// IPv4 addresses to which a packet may be forwarded or that this address represents; usually none.
    ///
    /// Network-specific NAT64 prefixes (RFC 6052, section 2.2) are unknown here and not detected.
    var embedded: [IPv4Address] {
        var found: [IPv4Address] = []
        if high == 0 {
            switch low >> 32 {
            // IPv4-compatible, RFC 4291, section 2.5.5.1; except `::` and `::1`.
            case 0 where low > 1: found.append(lowIPv4)
            case 0xffff: found.append(lowIPv4)
            // IPv4-translated, RFC 2765, section 2.1: ::ffff:0:a.b.c.d.
            case 0xffff_0000: found.append(lowIPv4)
            default: break
            }
        }
        // NAT64, RFC 6052, section 2.1: 64:ff9b::a.b.c.d.
        if high == 0x0064_ff9b_0000_0000, low >> 32 == 0 { found.append(lowIPv4) }
        // 6to4, RFC 3056, section 2: 2002:aabb:ccdd::/48.
        if high >> 48 == 0x2002 { found.append(IPv4Address(value: UInt32(truncatingIfNeeded: high >> 16))) }
        // Teredo, RFC 4380, section 4: 2001:0:server:flags:port:client, the client's bits inverted.
        if high >> 32 == 0x2001_0000 {
            found.append(IPv4Address(value: UInt32(truncatingIfNeeded: high)))
            found.append(IPv4Address(value: ~UInt32(truncatingIfNeeded: low)))
        }
        // ISATAP, RFC 5214, section 6.1: any prefix, then 0:5efe:a.b.c.d, with or without the universal bit.
        if low >> 32 & 0xfdff_ffff == 0x5efe { found.append(lowIPv4) }
        return found
    }

    private var lowIPv4: IPv4Address { IPv4Address(value: UInt32(truncatingIfNeeded: low)) }
}
