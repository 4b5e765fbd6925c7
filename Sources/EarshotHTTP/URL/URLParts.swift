internal import EarshotWire

/// Positions of a URL's parts in the bytes it was parsed from.
struct URLParts {
    /// Index of the colon after the scheme.
    let schemeEnd: Int
    /// Default port of the scheme; nil for any but http and https.
    let defaultPort: UInt16?
    /// Authority after `//`; nil for an opaque URL.
    let authority: URLAuthority?
    let path: Range<Int>
    /// Query without its question mark.
    let query: Range<Int>?
    /// Whether the bytes are already normalized.
    let isNormalized: Bool

    /// Parses `bytes`. Reads each byte of a normalized URL once, and of any other URL up to three times.
    init(_ bytes: Span<UInt8>) throws(FetchURL.ParseError) {
        if let normal = Self(normalized: bytes) {
            self = normal
            return
        }
        let end = try Self.endBeforeFragment(bytes)
        guard let schemeEnd = Self.schemeEnd(bytes) else { throw .missingScheme }
        let all = bytes
        let bytes = bytes.extracting(0..<end)
        var isNormal = end == all.count
        for index in 0..<schemeEnd where bytes[index].isUppercase { isNormal = false }
        self.schemeEnd = schemeEnd
        self.defaultPort = Self.defaultPort(bytes, 0..<schemeEnd)

        var index = schemeEnd + 1
        if index + 1 < end, bytes[index] == UInt8(ascii: "/"), bytes[index + 1] == UInt8(ascii: "/") {
            let authority = try URLAuthority(bytes, from: index + 2, defaultPort: defaultPort)
            if !authority.isNormalized { isNormal = false }
            index = authority.end
            self.authority = authority
        } else {
            guard defaultPort == nil else { throw .missingHost }
            authority = nil
        }

        let pathStart = index
        let isHierarchical = authority != nil
        if isHierarchical, index == end || bytes[index] == UInt8(ascii: "?") { isNormal = false }
        while index < end, bytes[index] != UInt8(ascii: "?") {
            let byte = bytes[index]
            if !byte.isPathByte { isNormal = false }
            if byte == UInt8(ascii: "/"), isHierarchical, Self.isDotSegment(bytes, index + 1) { isNormal = false }
            index += 1
        }
        path = pathStart..<index
        if index < end {
            query = index + 1..<end
            for index in index + 1..<end where !bytes[index].isQueryByte { isNormal = false }
        } else {
            query = nil
        }
        self.isNormalized = isNormal
    }

    /// Fast path for a normalized URL with an authority, as nearly all are; nil for any other URL. `init(_:)` then
    /// checks step by step and determines the error.
    private init?(normalized bytes: Span<UInt8>) {
        guard bytes.count <= HTTPLimits.urlBytes, let schemeEnd = Self.schemeEnd(bytes) else { return nil }
        let start = schemeEnd + 3
        guard bytes.count > start, bytes[start - 2] == UInt8(ascii: "/"), bytes[start - 1] == UInt8(ascii: "/") else {
            return nil
        }
        for index in 0..<schemeEnd where bytes[index].isUppercase { return nil }
        let defaultPort = Self.defaultPort(bytes, 0..<schemeEnd)
        guard let authority = try? URLAuthority(bytes, from: start, defaultPort: defaultPort), authority.isNormalized,
            authority.end < bytes.count, bytes[authority.end] == UInt8(ascii: "/")
        else { return nil }
        var index = authority.end
        while index < bytes.count {
            let byte = bytes[index]
            if ByteSet.pathSegment.contains(byte) {
                index &+= 1
            } else if byte == UInt8(ascii: "/") {
                index &+= 1
                if Self.isDotSegment(bytes, index) { return nil }
            } else {
                break
            }
        }
        path = authority.end..<index
        if index == bytes.count {
            query = nil
        } else {
            guard bytes[index] == UInt8(ascii: "?") else { return nil }
            let queryStart = index &+ 1
            index = queryStart
            while index < bytes.count {
                guard ByteSet.query.contains(bytes[index]) else { return nil }
                index &+= 1
            }
            query = queryStart..<index
        }
        self.schemeEnd = schemeEnd
        self.defaultPort = defaultPort
        self.authority = authority
        isNormalized = true
    }

    /// Layout of the bytes, which must be normalized.
    var layout: FetchURL.Layout {
        FetchURL.Layout(
            schemeEnd: UInt16(schemeEnd),
            hostStart: UInt16(authority?.hostRange.lowerBound ?? path.lowerBound),
            hostEnd: UInt16(authority?.hostRange.upperBound ?? path.lowerBound),
            pathStart: UInt16(path.lowerBound),
            queryStart: UInt16(path.upperBound),
            port: authority?.port ?? defaultPort,
            hasAuthority: authority != nil,
            isHTTP: defaultPort != nil)
    }

    /// Returns the index of the colon after the scheme; nil if `bytes` do not begin with a scheme. RFC 3986, section
    /// 3.1.
    static func schemeEnd(_ bytes: Span<UInt8>) -> Int? {
        guard !bytes.isEmpty, bytes[0].isLetter else { return nil }
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == UInt8(ascii: ":") { return index }
            let isPunctuation =
                byte == UInt8(ascii: "+") || byte == UInt8(ascii: "-") || byte == UInt8(ascii: ".")
            guard byte.isLetter || byte.isDigit || isPunctuation else { return nil }
        }
        return nil
    }

    /// Returns the default port of http and https; nil for any other scheme.
    static func defaultPort(_ scheme: String) -> UInt16? {
        let utf8 = scheme.utf8
        return defaultPort(utf8.span, utf8.span.indices)
    }

    private static func defaultPort(_ bytes: Span<UInt8>, _ scheme: Range<Int>) -> UInt16? {
        if matchesIgnoringCase(bytes, in: scheme, lowercase: "https") { return 443 }
        return matchesIgnoringCase(bytes, in: scheme, lowercase: "http") ? 80 : nil
    }

    /// Returns the host of an http or https URL; nil for any other text, and for an empty or bracketed host.
    static func httpHost(of bytes: Span<UInt8>) -> Range<Int>? {
        guard let end = try? endBeforeFragment(bytes), let schemeEnd = schemeEnd(bytes),
            defaultPort(bytes, 0..<schemeEnd) != nil
        else { return nil }
        let start = schemeEnd + 3
        guard start < end, bytes[start - 2] == UInt8(ascii: "/"), bytes[start - 1] == UInt8(ascii: "/"),
            let host = try? URLAuthority.partRanges(in: bytes.extracting(0..<end), from: start).host,
            !host.isEmpty, bytes[host.lowerBound] != UInt8(ascii: "[")
        else { return nil }
        return host
    }

    /// Returns the index of the fragment, or the end. Checks length, controls and backslashes.
    private static func endBeforeFragment(_ bytes: Span<UInt8>) throws(FetchURL.ParseError) -> Int {
        guard bytes.count <= HTTPLimits.urlBytes else { throw .tooLong }
        var end = bytes.count
        for index in bytes.indices {
            let byte = bytes[index]
            if byte.isControl { throw .controlCharacter }
            if byte == UInt8(ascii: "\\") { throw .backslash }
            if byte == UInt8(ascii: "#"), index < end { end = index }
        }
        return end
    }

    /// Returns whether the segment at `index`, up to a `/`, a `?` or the end, is `.` or `..`.
    static func isDotSegment(_ bytes: Span<UInt8>, _ index: Int) -> Bool {
        guard index < bytes.count, bytes[index] == UInt8(ascii: ".") else { return false }
        var end = index + 1
        while end < bytes.count, end - index < 2, bytes[end] == UInt8(ascii: ".") { end += 1 }
        return end == bytes.count || bytes[end] == UInt8(ascii: "/") || bytes[end] == UInt8(ascii: "?")
    }
}

/// Normal form of a parsed URL, for `FetchURL`.
extension URLParts {
    /// Returns the normalized URL and its layout.
    func serialized(_ bytes: Span<UInt8>) throws(FetchURL.ParseError) -> (text: String, layout: FetchURL.Layout) {
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count + 16)
        Self.appendLowercase(bytes, 0..<schemeEnd, to: &text)
        text.append(UInt8(ascii: ":"))
        var host = text.count..<text.count
        if let authority {
            text += [UInt8(ascii: "/"), UInt8(ascii: "/")]
            host = Self.appendAuthority(authority, bytes, to: &text)
        }
        let pathStart = text.count
        if authority == nil {
            Self.appendEscaped(bytes, path, to: &text, isLegal: \.isPathByte)
        } else {
            Self.appendPath(bytes, path, to: &text)
        }
        let queryStart = text.count
        if let query {
            text.append(UInt8(ascii: "?"))
            Self.appendEscaped(bytes, query, to: &text, isLegal: \.isQueryByte)
        }
        guard text.count <= HTTPLimits.urlBytes else { throw .tooLong }
        var layout = layout
        layout.hostStart = UInt16(host.lowerBound)
        layout.hostEnd = UInt16(host.upperBound)
        layout.pathStart = UInt16(pathStart)
        layout.queryStart = UInt16(queryStart)
        return (String(decoding: text, as: UTF8.self), layout)
    }

    /// Appends an authority without its `//`. Returns the position of the host.
    private static func appendAuthority(
        _ authority: URLAuthority, _ bytes: Span<UInt8>, to text: inout [UInt8]
    ) -> Range<Int> {
        if !authority.userinfo.isEmpty {
            for index in authority.userinfo { text.append(bytes[index]) }
            text.append(UInt8(ascii: "@"))
        }
        let start = text.count
        switch authority.host {
        case .name: appendLowercase(bytes, authority.hostRange, to: &text)
        case .address(.v4(let address), _): text += address.description.utf8
        case .address(.v6(let address), let zone):
            text += "[\(address)\(zone.isEmpty ? "" : "%25")".utf8
            for index in zone { text.append(bytes[index]) }
            text.append(UInt8(ascii: "]"))
        }
        let end = text.count
        if let port = authority.port { text += ":\(port)".utf8 }
        return start..<end
    }

    /// Appends a path that begins with `/` or is empty, and removes its dot segments: RFC 3986, section 5.2.4.
    private static func appendPath(_ bytes: Span<UInt8>, _ path: Range<Int>, to text: inout [UInt8]) {
        let solidus = UInt8(ascii: "/")
        let root = text.count
        var index = path.lowerBound
        while index < path.upperBound {
            // `index` is at a `/`; the segment follows it.
            let start = index + 1
            index = start
            while index < path.upperBound, bytes[index] != solidus { index += 1 }
            guard isDotSegment(bytes.extracting(start..<index), 0) else {
                text.append(solidus)
                appendEscaped(bytes, start..<index, to: &text, isLegal: \.isPathByte)
                continue
            }
            if index - start == 2 {
                while text.count > root, text.removeLast() != solidus {}
            }
            if index == path.upperBound { text.append(solidus) }
        }
        if text.count == root { text.append(solidus) }
    }

    private static func appendLowercase(_ bytes: Span<UInt8>, _ range: Range<Int>, to text: inout [UInt8]) {
        for index in range { text.append(bytes[index].lowercased) }
    }

    /// Appends the bytes of `range`, with illegal ones percent-escaped.
    private static func appendEscaped(
        _ bytes: Span<UInt8>, _ range: Range<Int>, to text: inout [UInt8], isLegal: (UInt8) -> Bool
    ) {
        for index in range {
            let byte = bytes[index]
            if isLegal(byte) { text.append(byte) } else { PercentEncoding.appendEscape(of: byte, to: &text) }
        }
    }
}
