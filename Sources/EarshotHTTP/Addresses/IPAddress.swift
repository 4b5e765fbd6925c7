internal import EarshotWire

/// Numeric IP address: the host of a URL, or a resolver's result.
public enum IPAddress: Hashable, Sendable, CustomStringConvertible {
    case v4(IPv4Address)
    case v6(IPv6Address)

    /// Parses dotted decimal IPv4 or any text form of IPv6, without brackets and zone; nil for other text.
    ///
    /// Legacy forms of IPv4 (`2130706433`, `0x7f.1`) are rejected here. Only the host of a `FetchURL` may have them.
    public init?(_ text: String) {
        let utf8 = text.utf8
        if let address = IPv4Address(dottedDecimal: utf8.span) {
            self = .v4(address)
        } else if let address = IPv6Address(utf8.span) {
            self = .v6(address)
        } else {
            return nil
        }
    }

    /// Parses the host of a URL, without brackets; nil for a name. The zone of an address is ignored.
    public init?(host: String) {
        guard host.utf8.contains(UInt8(ascii: "%")) else {
            self.init(host)
            return
        }
        self.init(String(host.prefix { $0 != "%" }))
    }

    /// Canonical text without brackets; RFC 5952 for IPv6.
    public var description: String {
        switch self {
        case .v4(let address): address.description
        case .v6(let address): address.description
        }
    }
}

/// IPv4 address: its parser and its text. `IPAddress` is one of either version.
public struct IPv4Address: Hashable, Sendable, CustomStringConvertible {
    /// Numeric value in network order: 127.0.0.1 is 0x7f000001.
    public let value: UInt32

    /// Creates the address with this numeric value.
    public init(value: UInt32) {
        self.value = value
    }

    /// Parses four decimal octets without leading zeros (RFC 3986, section 3.2.2, `IPv4address`); nil for other text.
    public init?(_ text: String) {
        let utf8 = text.utf8
        self.init(dottedDecimal: utf8.span)
    }

    /// Four decimal octets separated by dots.
    public var description: String {
        "\(value >> 24).\(value >> 16 & 255).\(value >> 8 & 255).\(value & 255)"
    }

    /// Implements `init(_:)` for bytes.
    init?(dottedDecimal bytes: Span<UInt8>) {
        guard bytes.count <= 15 else { return nil }
        var value: UInt32 = 0
        var parts = 0
        var start = 0
        for index in 0...bytes.count where index == bytes.count || bytes[index] == UInt8(ascii: ".") {
            let hasLeadingZero = index - start > 1 && bytes[start] == UInt8(ascii: "0")
            guard !hasLeadingZero, let octet = parseDecimal(bytes, in: start..<index, maximum: 255) else { return nil }
            value = value << 8 | UInt32(octet)
            parts += 1
            start = index + 1
        }
        guard parts == 4 else { return nil }
        self.value = value
    }

    /// Parses the forms that resolvers have accepted since `inet_aton`: one to four numbers, each decimal, hexadecimal
    /// (`0x`) or octal (`0`). The last number fills the remaining octets.
    ///
    /// - Parameter bytes: Host name without a trailing dot. URL standard, "IPv4 parser".
    init?(legacyForm bytes: Span<UInt8>) {
        var value: UInt64 = 0
        var parts = 0
        var start = 0
        for index in 0...bytes.count where index == bytes.count || bytes[index] == UInt8(ascii: ".") {
            guard parts < 4, let number = Self.parseLegacyPart(bytes, in: start..<index) else { return nil }
            if index == bytes.count {
                let octetsLeft = UInt64(4 - parts)
                guard number < 1 << (8 * octetsLeft) else { return nil }
                value = value << (8 * octetsLeft) | number
            } else {
                guard number < 256 else { return nil }
                value = value << 8 | number
            }
            parts += 1
            start = index + 1
        }
        self.value = UInt32(truncatingIfNeeded: value)
    }

    /// Parses the number of one part, URL standard, "IPv4 number parser"; nil for other text or more than 32 bits.
    private static func parseLegacyPart(_ bytes: Span<UInt8>, in range: Range<Int>) -> UInt64? {
        guard let first = range.first else { return nil }
        var radix: UInt64 = 10
        var digits = range
        if bytes[first] == UInt8(ascii: "0"), range.count > 1 {
            let isHexadecimal = bytes[first + 1].lowercased == UInt8(ascii: "x")
            radix = isHexadecimal ? 16 : 8
            digits = first + (isHexadecimal ? 2 : 1)..<range.upperBound
        }
        var value: UInt64 = 0
        for index in digits {
            guard let digit = bytes[index].hexValue, digit < radix else { return nil }
            value = value * radix + UInt64(digit)
            guard value <= UInt64(UInt32.max) else { return nil }
        }
        return value
    }
}

/// IPv6 address without a zone: its parser, its normal form, and the IPv4 address that it may contain.
public struct IPv6Address: Hashable, Sendable, CustomStringConvertible {
    /// First 64 bits.
    public let highBits: UInt64
    /// Last 64 bits.
    public let lowBits: UInt64

    /// Creates the address with these bits.
    public init(highBits: UInt64, lowBits: UInt64) {
        self.highBits = highBits
        self.lowBits = lowBits
    }

    /// Parses the text forms of RFC 4291, section 2.2, without brackets; nil for other text and for one with a zone.
    public init?(_ text: String) {
        let utf8 = text.utf8
        self.init(utf8.span)
    }

    /// Whether it is a link-local unicast address, `fe80::/10`: RFC 4291, section 2.5.6.
    var isLinkLocal: Bool { highBits >> 54 == 0xfe80 >> 6 }

    /// Text form recommended by RFC 5952. Of addresses that embed an IPv4 address, only mapped ones (`::ffff:0:0/96`)
    /// are written with dots.
    public var description: String {
        if highBits == 0, lowBits >> 32 == 0xffff {
            return "::ffff:\(IPv4Address(value: UInt32(truncatingIfNeeded: lowBits)))"
        }
        let zeros = longestZeroRun
        var text = ""
        for index in 0..<8 where !zeros.contains(index) || index == zeros.lowerBound {
            if index == zeros.lowerBound, !zeros.isEmpty {
                text += "::"
            } else {
                if index > 0, zeros.isEmpty || index != zeros.upperBound { text += ":" }
                text += String(group(at: index), radix: 16)
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
                guard count <= 6, let embedded = IPv4Address(dottedDecimal: tail) else { return nil }
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
        self.init(groups: groups, count: count, zeroRunIndex: zerosAt ?? count)
    }

    /// Creates the address of `count` groups, and of as many zero groups before group `zeroRunIndex` as make eight.
    private init(groups: InlineArray<8, UInt16>, count: Int, zeroRunIndex: Int) {
        var high: UInt64 = 0
        var low: UInt64 = 0
        for position in 0..<8 {
            let isZero = position >= zeroRunIndex && position < zeroRunIndex + 8 - count
            let group = isZero ? 0 : groups[position < zeroRunIndex ? position : position - (8 - count)]
            if position < 4 { high = high << 16 | UInt64(group) } else { low = low << 16 | UInt64(group) }
        }
        self.init(highBits: high, lowBits: low)
    }

    /// Returns the group at `index`, 0 to 7 from the left.
    private func group(at index: Int) -> UInt16 {
        let half = index < 4 ? highBits : lowBits
        return UInt16(truncatingIfNeeded: half >> (48 - 16 * UInt64(index % 4)))
    }

    /// First of the longest runs of at least two zero groups (RFC 5952, sections 4.2.2 and 4.2.3); 0..<0 if there is
    /// none.
    private var longestZeroRun: Range<Int> {
        var longest = 0..<0
        var start = 0
        for index in 0...8 where index == 8 || group(at: index) != 0 {
            if index - start >= 2, index - start > longest.count { longest = start..<index }
            start = index + 1
        }
        return longest
    }
}

extension IPv6Address {
    /// IPv4 address of the mapped form `::ffff:a.b.c.d`: RFC 4291, section 2.5.5.2.
    var mappedIPv4: IPv4Address? { highBits == 0 && lowBits >> 32 == 0xffff ? lowIPv4 : nil }

    /// IPv4 addresses to which a packet may be forwarded or that this address represents; usually none.
    ///
    /// Network-specific NAT64 prefixes (RFC 6052, section 2.2) are unknown here and not detected.
    var embeddedIPv4Addresses: [IPv4Address] {
        var found: [IPv4Address] = []
        if highBits == 0 {
            switch lowBits >> 32 {
            // IPv4-compatible, RFC 4291, section 2.5.5.1; except `::` and `::1`.
            case 0 where lowBits > 1: found.append(lowIPv4)
            case 0xffff: found.append(lowIPv4)
            // IPv4-translated, RFC 2765, section 2.1: ::ffff:0:a.b.c.d.
            case 0xffff_0000: found.append(lowIPv4)
            default: break
            }
        }
        // NAT64, RFC 6052, section 2.1: 64:ff9b::a.b.c.d.
        if highBits == 0x0064_ff9b_0000_0000, lowBits >> 32 == 0 { found.append(lowIPv4) }
        // 6to4, RFC 3056, section 2: 2002:aabb:ccdd::/48.
        if highBits >> 48 == 0x2002 { found.append(IPv4Address(value: UInt32(truncatingIfNeeded: highBits >> 16))) }
        // Teredo, RFC 4380, section 4: 2001:0:server:flags:port:client, the client's bits inverted.
        if highBits >> 32 == 0x2001_0000 {
            found.append(IPv4Address(value: UInt32(truncatingIfNeeded: highBits)))
            found.append(IPv4Address(value: ~UInt32(truncatingIfNeeded: lowBits)))
        }
        // ISATAP, RFC 5214, section 6.1: any prefix, then 0:5efe:a.b.c.d, with or without the universal bit.
        if lowBits >> 32 & 0xfdff_ffff == 0x5efe { found.append(lowIPv4) }
        return found
    }

    private var lowIPv4: IPv4Address { IPv4Address(value: UInt32(truncatingIfNeeded: lowBits)) }
}
