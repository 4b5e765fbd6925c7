/// An IPv4 address.
public struct IPv4Address: Hashable, Sendable, CustomStringConvertible {
    /// The address as a number, first octet highest: 127.0.0.1 is 0x7f000001.
    public let value: UInt32

    /// The address with the number `value`.
    public init(value: UInt32) {
        self.value = value
    }

    /// Reads four decimal octets without leading zeros (RFC 3986, section 3.2.2, `IPv4address`); nil for other text.
    public init?(_ text: String) {
        let utf8 = text.utf8
        self.init(strict: utf8.span)
    }

    /// Four decimal octets, dots between them.
    public var description: String {
        "\(value >> 24).\(value >> 16 & 255).\(value >> 8 & 255).\(value & 255)"
    }

    /// `init(_:)` on bytes.
    init?(strict bytes: Span<UInt8>) {
        guard bytes.count <= 15 else { return nil }
        var value: UInt32 = 0
        var parts = 0
        var start = 0
        for index in 0...bytes.count where index == bytes.count || bytes[index] == UInt8(ascii: ".") {
            let hasLeadingZero = index - start > 1 && bytes[start] == UInt8(ascii: "0")
            guard !hasLeadingZero, let octet = decimal(bytes, start..<index, maximum: 255) else { return nil }
            value = value << 8 | UInt32(octet)
            parts += 1
            start = index + 1
        }
        guard parts == 4 else { return nil }
        self.value = value
    }

    /// Reads what resolvers have read as an IPv4 address since `inet_aton`: one to four numbers, each decimal,
    /// hexadecimal (`0x`) or octal (`0`), the last of which fills the octets that are left.
    ///
    /// - Parameter bytes: A host name without a dot at its end. URL standard, "IPv4 parser".
    init?(legacy bytes: Span<UInt8>) {
        var value: UInt64 = 0
        var parts = 0
        var start = 0
        for index in 0...bytes.count where index == bytes.count || bytes[index] == UInt8(ascii: ".") {
            guard parts < 4, let number = Self.legacyNumber(bytes, start..<index) else { return nil }
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

    /// The number of one part, URL standard, "IPv4 number parser"; nil if it is none, or over 32 bits.
    private static func legacyNumber(_ bytes: Span<UInt8>, _ range: Range<Int>) -> UInt64? {
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
