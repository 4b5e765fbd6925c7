/// Network of addresses with a common prefix: RFC 4632, section 3.1, and RFC 4291, section 2.3.
///
/// A network of IPv4-mapped addresses (`::ffff:10.0.0.0/104`) is converted to the IPv4 network, because a connection to
/// a mapped address uses IPv4.
public struct IPNetwork: Hashable, Sendable, CustomStringConvertible {
    /// First address of the network.
    public let address: IPAddress
    /// Length of the prefix in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    public let prefixLength: Int

    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    public init(_ text: String) throws(ParseError) {
        let (address, prefix) = try Self.parse(text)
        let network = Self(truncating: address, prefixLength: prefix)
        guard network.address == address else { throw .nonzeroHostBits(network) }
        self.init(containing: address, prefixLength: prefix)
    }

    /// Parses a network and clears its host bits, as routers do: `10.1.2.3/8` is `10.0.0.0/8`.
    public init(maskingHostBitsOf text: String) throws(ParseError) {
        let (address, prefix) = try Self.parse(text)
        self.init(containing: address, prefixLength: prefix)
    }

    private static func parse(_ text: String) throws(ParseError) -> (IPAddress, prefix: Int) {
        let utf8 = Array(text.utf8)
        let slash = utf8.firstIndex(of: UInt8(ascii: "/")) ?? utf8.endIndex
        guard let address = IPAddress(String(decoding: utf8[..<slash], as: UTF8.self)) else { throw .notANetwork }
        let longest = bitWidth(of: address)
        guard slash < utf8.endIndex else { return (address, longest) }
        let digits = utf8[(slash + 1)...]
        guard digits.count <= 3, let number = parseDecimal(digits.span, in: digits.span.indices, maximum: longest)
        else {
            throw .notANetwork
        }
        return (address, number)
    }

    /// Creates the network that contains an address, of IPv4 for a mapped one.
    private init(containing address: IPAddress, prefixLength: Int) {
        if case .v6(let mapped) = address, let embedded = mapped.mappedIPv4, prefixLength >= 96 {
            self.init(truncating: .v4(embedded), prefixLength: prefixLength - 96)
        } else {
            self.init(truncating: address, prefixLength: prefixLength)
        }
    }

    /// Error in the text of a network.
    public enum ParseError: Error, Hashable, Sendable {
        /// Not an address, or a prefix length that is out of range.
        case notANetwork
        /// Host bits are set. Contains the network with these bits cleared.
        case nonzeroHostBits(IPNetwork)
    }

    /// Creates the network that contains an address.
    ///
    /// - Parameter prefixLength: 0 to the number of bits of the address.
    init(truncating address: IPAddress, prefixLength: Int) {
        self.prefixLength = prefixLength
        switch address {
        case .v4(let v4):
            self.address = .v4(IPv4Address(value: v4.value & ~(UInt32.max >> UInt32(prefixLength))))
        case .v6(let v6):
            let high = UInt64.max >> UInt64(min(prefixLength, 64))
            let low = UInt64.max >> UInt64(max(prefixLength - 64, 0))
            self.address = .v6(IPv6Address(highBits: v6.highBits & ~high, lowBits: v6.lowBits & ~low))
        }
    }

    /// Returns whether the network contains the address. An address of the other IP version is never contained.
    public func contains(_ other: IPAddress) -> Bool {
        switch (address, other) {
        case (.v4, .v4), (.v6, .v6): Self(truncating: other, prefixLength: prefixLength).address == address
        case (.v4, .v6), (.v6, .v4): false
        }
    }

    /// Canonical address and prefix length, separated by a slash.
    public var description: String { "\(address)/\(prefixLength)" }

    /// Whether the network is a single address.
    var isSingleAddress: Bool { prefixLength == Self.bitWidth(of: address) }

    private static func bitWidth(of address: IPAddress) -> Int {
        switch address {
        case .v4: 32
        case .v6: 128
        }
    }
}
