internal import EarshotWire

/// Normal form of a parsed URL, for `FetchURL`.
extension URLParts {
    /// Returns the normalized URL and its layout.
    func serialized(
        _ bytes: Span<UInt8>
    ) throws(FetchURL.ParseError) -> (text: String, layout: FetchURL.Layout) {
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count + 16)
        Self.appendLowercase(bytes, 0..<schemeEnd, to: &text)
        text.append(UInt8(ascii: ":"))
        var host = text.count..<text.count
        if let authority {
            text += [UInt8(ascii: "/"), UInt8(ascii: "/")]
            host = Self.append(authority, bytes, to: &text)
        }
        let pathStart = text.count
        if authority == nil {
            Self.appendEscaped(bytes, path, to: &text, isLegal: \.isPath)
        } else {
            Self.appendPath(bytes, path, to: &text)
        }
        let queryStart = text.count
        if let query {
            text.append(UInt8(ascii: "?"))
            Self.appendEscaped(bytes, query, to: &text, isLegal: \.isQuery)
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
    private static func append(_ authority: URLAuthority, _ bytes: Span<UInt8>, to text: inout [UInt8]) -> Range<Int> {
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
                appendEscaped(bytes, start..<index, to: &text, isLegal: \.isPath)
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
            if isLegal(byte) { text.append(byte) } else { PercentEncoding.append(byte, to: &text) }
        }
    }
}
