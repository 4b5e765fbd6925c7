internal import EarshotWire

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
        self.init(strict: utf8.span)
    }

    /// Four decimal octets separated by dots.
    public var description: String {
        "\(value >> 24).\(value >> 16 & 255).\(value >> 8 & 255).\(value & 255)"
    }

    /// Implements `init(_:)` for bytes.
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

    /// Parses the forms that resolvers have accepted since `inet_aton`: one to four numbers, each decimal, hexadecimal
    /// (`0x`) or octal (`0`). The last number fills the remaining octets.
    ///
    /// - Parameter bytes: Host name without a trailing dot. URL standard, "IPv4 parser".
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

    /// Parses the number of one part, URL standard, "IPv4 number parser"; nil for other text or more than 32 bits.
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
