internal import EarshotWire

/// The host of a URL that `URLAuthority` parses: a name or an address.
enum URLHost {
    /// Name as written; may be empty.
    case name
    /// - Parameter zone: Bytes of the zone of a link-local address, as written; empty without one.
    case address(IPAddress, zone: Range<Int> = 0..<0)

    /// Parses the host in `range`, and checks whether it is normalized.
    ///
    /// A name consists of letters, digits, `-`, `_` and `.`. Other bytes that RFC 3986 permits do not occur in DNS
    /// names, and `*` and `,` have a meaning in libcurl's CURLOPT_RESOLVE.
    ///
    /// - Parameter allowsLegacyIPv4: Interprets a name that ends in a number like `inet_aton`, as the URL standard
    ///   requires for http. Address checks then recognize `0x7f.1` as 127.0.0.1.
    static func parse(
        _ bytes: Span<UInt8>, _ range: Range<Int>, allowsLegacyIPv4: Bool
    ) throws(FetchURL.ParseError) -> (host: URLHost, isNormal: Bool) {
        guard let first = range.first else { return (.name, true) }
        if bytes[first] == UInt8(ascii: "[") {
            return try parseIPv6Literal(bytes, first + 1..<range.upperBound - 1)
        }
        var isNormal = true
        var label = first
        for index in range {
            let byte = bytes[index]
            if ByteSet.host.contains(byte) { continue }
            if byte.isUppercase {
                isNormal = false
            } else if byte == UInt8(ascii: "."), index > label, index - label <= HTTPLimits.labelBytes {
                label = index + 1
            } else {
                throw byte == UInt8(ascii: "%") ? .escapedHost : byte >= 0x80 ? .nonASCIIHost : .invalidHost
            }
        }
        let hasFinalDot = label == range.upperBound
        let name = first..<range.upperBound - (hasFinalDot ? 1 : 0)
        guard range.upperBound - label <= HTTPLimits.labelBytes, name.count <= HTTPLimits.hostBytes else {
            throw .invalidHost
        }
        guard allowsLegacyIPv4, endsInNumber(bytes, name) else { return (.name, isNormal) }
        guard let address = IPv4Address(legacyForm: bytes.extracting(name)) else { throw .invalidAddress }
        return (.address(.v4(address)), isEqual(address.description, toBytes: bytes.extracting(range)))
    }

    /// Parses an IPv6 address, in the URL between brackets, possibly with a zone: RFC 4007, section 11.
    ///
    /// The normal form of a zone is that of RFC 6874, `%25eth0`. Programs also write `%eth0`.
    private static func parseIPv6Literal(
        _ bytes: Span<UInt8>, _ range: Range<Int>
    ) throws(FetchURL.ParseError) -> (host: URLHost, isNormal: Bool) {
        var end = range.lowerBound
        while end < range.upperBound, bytes[end] != UInt8(ascii: "%") { end += 1 }
        guard let address = IPv6Address(bytes.extracting(range.lowerBound..<end)) else { throw .invalidAddress }
        let isNormal = isEqual(address.description, toBytes: bytes.extracting(range.lowerBound..<end))
        guard end < range.upperBound else { return (.address(.v6(address)), isNormal) }
        let isEscaped =
            range.upperBound - end > 3 && bytes[end + 1] == UInt8(ascii: "2") && bytes[end + 2] == UInt8(ascii: "5")
        let zone = end + (isEscaped ? 3 : 1)..<range.upperBound
        // Addresses of global scope have no zones: a zone would only add other names for them.
        guard address.isLinkLocal, !zone.isEmpty, zone.count <= HTTPLimits.zoneBytes else { throw .invalidAddress }
        for index in zone where !bytes[index].isZoneByte { throw .invalidAddress }
        return (.address(.v6(address), zone: zone), isNormal && isEscaped)
    }

    /// Returns whether the last label of `name` is all digits or a hexadecimal number: URL standard, "ends in a number
    /// checker".
    private static func endsInNumber(_ bytes: Span<UInt8>, _ name: Range<Int>) -> Bool {
        var start = name.upperBound
        while start > name.lowerBound, bytes[start - 1] != UInt8(ascii: ".") { start -= 1 }
        guard bytes[start].isDigit else { return false }
        let isHexadecimal =
            bytes[start] == UInt8(ascii: "0") && start + 1 < name.upperBound && bytes[start + 1].lowercased == 0x78
        for index in start + (isHexadecimal ? 2 : 0)..<name.upperBound {
            guard isHexadecimal ? bytes[index].hexValue != nil : bytes[index].isDigit else { return false }
        }
        return true
    }

    /// Returns whether `bytes` are equal to the text of `address`.
    private static func isEqual(_ address: String, toBytes bytes: Span<UInt8>) -> Bool {
        let utf8 = address.utf8
        let text = utf8.span
        guard text.count == bytes.count else { return false }
        for index in text.indices where text[index] != bytes[index] { return false }
        return true
    }
}

/// Conversion of internationalized host names to ASCII by UTS 46, as `xn--` labels.
///
/// The Unicode tables belong to a C library, which this module does not link, so the shell supplies the function. Its
/// result depends only on the name, and is validated like any host of a URL.
public struct HostNameEncoder: Sendable {
    /// Reason why a name has no ASCII form.
    public struct Failure: Error, Hashable, Sendable {
        /// Phrase for the user that contains no part of the name.
        public let reason: String

        public init(_ reason: String) { self.reason = reason }
    }

    private let encodeName: @Sendable (String) throws(Failure) -> String

    /// - Parameter function: Called on any thread with a name that is not ASCII.
    public init(_ function: @escaping @Sendable (String) throws(Failure) -> String) { self.encodeName = function }

    /// Returns the URL in `bytes` with its http or https host converted to ASCII; nil if that host is already ASCII.
    ///
    /// Percent-escapes of bytes above 7F in the host are decoded first, as the URL standard does.
    func urlWithASCIIHost(_ bytes: Span<UInt8>) throws(FetchURL.ParseError) -> [UInt8]? {
        guard let range = URLParts.httpHost(of: bytes) else { return nil }
        let host = bytes.extracting(range)
        var name: [UInt8] = []
        var index = 0
        while index < host.count {
            if let escaped = Self.escapedByte(host, index) {
                name.append(escaped)
                index += 3
            } else {
                name.append(host[index])
                index += 1
            }
        }
        guard name.contains(where: { $0 >= 0x80 }) else { return nil }
        guard let text = String(validating: name, as: UTF8.self) else { throw .invalidHostName("it is not UTF-8") }
        let ascii: String
        do throws(Failure) { ascii = try encodeName(text) } catch { throw .invalidHostName(error.reason) }
        // A mapped character may be a delimiter of URLs, such as a solidus.
        guard ascii.utf8.allSatisfy({ ByteSet.host.contains($0) || $0 == UInt8(ascii: ".") }) else {
            throw .invalidHostName("string contains a disallowed character")
        }
        var encoded: [UInt8] = []
        encoded.reserveCapacity(bytes.count + ascii.utf8.count)
        for index in 0..<range.lowerBound { encoded.append(bytes[index]) }
        encoded += ascii.utf8
        for index in range.upperBound..<bytes.count { encoded.append(bytes[index]) }
        return encoded
    }

    /// Decodes the percent-escape of a byte above 7F at `index`; nil for anything else.
    private static func escapedByte(_ bytes: Span<UInt8>, _ index: Int) -> UInt8? {
        guard index + 2 < bytes.count, bytes[index] == UInt8(ascii: "%"), let high = bytes[index + 1].hexValue,
            let low = bytes[index + 2].hexValue, high >= 8
        else { return nil }
        return high << 4 | low
    }
}
