/// The authority of a URL that `URLParts` parses: `userinfo@host:port`.
struct URLAuthority {
    /// User information; empty if absent or only a colon.
    let userinfo: Range<Int>
    /// Host as written, including brackets.
    let hostRange: Range<Int>
    let host: URLHost
    /// Port, unless it is the scheme's default.
    let port: UInt16?
    /// Index at which the path begins.
    let end: Int
    let isNormalized: Bool

    /// Parses the bytes from `start`, after `//`, to the next `/`, `?` or the end of `bytes`.
    ///
    /// - Parameter defaultPort: Default port of the scheme; nil for any but http and https. Only http and https require
    ///   a host and interpret a numeric name as an address.
    init(_ bytes: Span<UInt8>, from start: Int, defaultPort: UInt16?) throws(FetchURL.ParseError) {
        let (userinfo, hostRange, end) = try Self.partRanges(in: bytes, from: start)
        for index in userinfo where !bytes[index].isUserinfoByte { throw .invalidUserinfo }
        let isBlank = userinfo.isEmpty || (userinfo.count == 1 && bytes[start] == UInt8(ascii: ":"))
        let hasSeparator = hostRange.lowerBound > start
        guard defaultPort == nil || !hostRange.isEmpty else { throw .missingHost }
        let (host, isHostNormal) = try URLHost.parse(bytes, hostRange, allowsLegacyIPv4: defaultPort != nil)

        self.userinfo = isBlank ? start..<start : userinfo
        self.hostRange = hostRange
        self.host = host
        self.end = end
        if hostRange.upperBound == end {
            port = nil
            isNormalized = isHostNormal && !(isBlank && hasSeparator)
        } else {
            let digits = hostRange.upperBound + 1..<end
            let given = try Self.parsePort(bytes, digits)
            port = given == defaultPort ? nil : given
            isNormalized =
                isHostNormal && !(isBlank && hasSeparator) && port != nil
                && bytes[digits.lowerBound] != UInt8(ascii: "0")
        }
    }

    /// Finds user information, host and end of the authority that begins at `start`.
    static func partRanges(
        in bytes: Span<UInt8>, from start: Int
    ) throws(FetchURL.ParseError) -> (userinfo: Range<Int>, host: Range<Int>, end: Int) {
        var end = start
        var at: Int?
        while end < bytes.count, bytes[end] != UInt8(ascii: "/"), bytes[end] != UInt8(ascii: "?") {
            if bytes[end] == UInt8(ascii: "@") {
                guard at == nil else { throw .invalidUserinfo }
                at = end
            }
            end += 1
        }
        let hostStart = at.map { $0 + 1 } ?? start
        var hostEnd = hostStart
        if hostStart < end, bytes[hostStart] == UInt8(ascii: "[") {
            while hostEnd < end, bytes[hostEnd] != UInt8(ascii: "]") { hostEnd += 1 }
            guard hostEnd < end else { throw .invalidAddress }
            hostEnd += 1
            guard hostEnd == end || bytes[hostEnd] == UInt8(ascii: ":") else { throw .invalidAddress }
        } else {
            while hostEnd < end, bytes[hostEnd] != UInt8(ascii: ":") { hostEnd += 1 }
        }
        return (start..<(at ?? start), hostStart..<hostEnd, end)
    }

    /// Parses a port; nil if it is empty, as RFC 3986, section 3.2.3, allows.
    private static func parsePort(_ bytes: Span<UInt8>, _ digits: Range<Int>) throws(FetchURL.ParseError) -> UInt16? {
        guard !digits.isEmpty else { return nil }
        guard let number = parseDecimal(bytes, in: digits, maximum: 65_535), number > 0 else { throw .invalidPort }
        return UInt16(number)
    }
}
