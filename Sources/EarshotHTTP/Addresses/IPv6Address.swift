internal import EarshotWire

/// IPv6 address without a zone: its parser, its normal form, and the IPv4 address that it may contain.
public struct IPv6Address: Hashable, Sendable, CustomStringConvertible {
    /// First 64 bits.
    public let high: UInt64
    /// Last 64 bits.
    public let low: UInt64

    /// Creates the address with these bits.
    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Parses the text forms of RFC 4291, section 2.2, without brackets; nil for other text and for one with a zone.
    public init?(_ text: String) {
        let utf8 = text.utf8
        self.init(utf8.span)
    }

    /// Whether it is a link-local unicast address, `fe80::/10`: RFC 4291, section 2.5.6.
    var isLinkLocal: Bool { high >> 54 == 0xfe80 >> 6 }

    /// Text form recommended by RFC 5952. Of addresses that embed an IPv4 address, only mapped ones (`::ffff:0:0/96`)
    /// are written with dots.
    public var description: String {
        if high == 0, low >> 32 == 0xffff {
            return "::ffff:\(IPv4Address(value: UInt32(truncatingIfNeeded: low)))"
        }
        let zeros = longestZeroRun
        var text = ""
        for index in 0..<8 where !zeros.contains(index) || index == zeros.lowerBound {
            if index == zeros.lowerBound, !zeros.isEmpty {
                text += "::"
            } else {
                if index > 0, zeros.isEmpty || index != zeros.upperBound { text += ":" }
                text += String(group(index), radix: 16)
            }
        }
        return text
    }

    /// Implements `init(_:)` for bytes.
    init?(_ bytes: Span<UInt8>) {
        guard bytes.count <= 45 else { return nil }
        var groups = InlineArray<8, UInt16>(repeating: 0)
        var count = 0
        var zerosAt: Int?
        var index = 0
        if bytes.count >= 2, bytes[0] == UInt8(ascii: ":"), bytes[1] == UInt8(ascii: ":") {
            zerosAt = 0
            index = 2
        }
        while index < bytes.count {
            guard count < 8 else { return nil }
            let start = index
            var group: UInt16 = 0
            while index < bytes.count, index - start < 4, let digit = bytes[index].hexValue {
                group = group << 4 | UInt16(digit)
                index += 1
            }
            guard index > start else { return nil }
            if index < bytes.count, bytes[index] == UInt8(ascii: ".") {
                let tail = bytes.extracting(start..<bytes.count)
                guard count <= 6, let embedded = IPv4Address(strict: tail) else { return nil }
                groups[count] = UInt16(embedded.value >> 16)
                groups[count + 1] = UInt16(embedded.value & 0xffff)
                count += 2
                break
            }
            groups[count] = group
            count += 1
            guard index < bytes.count else { break }
            guard bytes[index] == UInt8(ascii: ":"), index + 1 < bytes.count else { return nil }
            index += 1
            if bytes[index] == UInt8(ascii: ":") {
                guard zerosAt == nil else { return nil }
                zerosAt = count
                index += 1
            }
        }
        // `::` represents at least one group.
        guard zerosAt == nil ? count == 8 : count < 8 else { return nil }
        self.init(groups: groups, count: count, zerosAt: zerosAt ?? count)
    }

    /// Creates the address of `count` groups. Zero groups are inserted before group `zerosAt`, up to eight in total.
    private init(groups: InlineArray<8, UInt16>, count: Int, zerosAt: Int) {
        var high: UInt64 = 0
        var low: UInt64 = 0
        for position in 0..<8 {
            let isZero = position >= zerosAt && position < zerosAt + 8 - count
            let group = isZero ? 0 : groups[position < zerosAt ? position : position - (8 - count)]
            if position < 4 { high = high << 16 | UInt64(group) } else { low = low << 16 | UInt64(group) }
        }
        self.init(high: high, low: low)
    }

    /// Returns the group at `index`, 0 to 7 from the left.
    private func group(_ index: Int) -> UInt16 {
        let half = index < 4 ? high : low
        return UInt16(truncatingIfNeeded: half >> (48 - 16 * UInt64(index % 4)))
    }

    /// First of the longest runs of at least two zero groups (RFC 5952, sections 4.2.2 and 4.2.3); 0..<0 if there is
    /// none.
    private var longestZeroRun: Range<Int> {
        var longest = 0..<0
        var start = 0
        for index in 0...8 where index == 8 || group(index) != 0 {
            if index - start >= 2, index - start > longest.count { longest = start..<index }
            start = index + 1
        }
        return longest
    }
}

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
