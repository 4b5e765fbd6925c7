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
    let isNormal: Bool

    /// Parses `bytes`. Reads each byte of a normalized URL once, and of any other URL up to three times.
    init(_ bytes: Span<UInt8>) throws(FetchURL.ParseError) {
        if let normal = Self(normal: bytes) {
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
            if !authority.isNormal { isNormal = false }
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
            if !byte.isPath { isNormal = false }
            if byte == UInt8(ascii: "/"), isHierarchical, Self.isDotSegment(bytes, index + 1) { isNormal = false }
            index += 1
        }
        path = pathStart..<index
        if index < end {
            query = index + 1..<end
            for index in index + 1..<end where !bytes[index].isQuery { isNormal = false }
        } else {
            query = nil
        }
        self.isNormal = isNormal
    }

    /// Fast path for a normalized URL with an authority, as nearly all are; nil for any other URL. `init(_:)` then
    /// checks step by step and determines the error.
    private init?(normal bytes: Span<UInt8>) {
        guard bytes.count <= HTTPLimits.urlBytes, let schemeEnd = Self.schemeEnd(bytes) else { return nil }
        let start = schemeEnd + 3
        guard bytes.count > start, bytes[start - 2] == UInt8(ascii: "/"), bytes[start - 1] == UInt8(ascii: "/") else {
            return nil
        }
        for index in 0..<schemeEnd where bytes[index].isUppercase { return nil }
        let defaultPort = Self.defaultPort(bytes, 0..<schemeEnd)
        guard let authority = try? URLAuthority(bytes, from: start, defaultPort: defaultPort), authority.isNormal,
            authority.end < bytes.count, bytes[authority.end] == UInt8(ascii: "/")
        else { return nil }
        var index = authority.end
        while index < bytes.count {
            let byte = bytes[index]
            if ByteSet.segment.contains(byte) {
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
        isNormal = true
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
        if matches(bytes, scheme, lowercase: "https") { return 443 }
        return matches(bytes, scheme, lowercase: "http") ? 80 : nil
    }

    /// Returns the host of an http or https URL; nil for any other text, and for an empty or bracketed host.
    static func httpHost(of bytes: Span<UInt8>) -> Range<Int>? {
        guard let end = try? endBeforeFragment(bytes), let schemeEnd = schemeEnd(bytes),
            defaultPort(bytes, 0..<schemeEnd) != nil
        else { return nil }
        let start = schemeEnd + 3
        guard start < end, bytes[start - 2] == UInt8(ascii: "/"), bytes[start - 1] == UInt8(ascii: "/"),
            let host = try? URLAuthority.split(bytes.extracting(0..<end), from: start).host,
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
            if byte.isControl { throw .control }
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
