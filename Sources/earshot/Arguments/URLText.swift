internal import EarshotLoop
internal import EarshotWire

/// Conversion of a URL from the command line or a list into its form on the wire.
enum URLText {
    /// Returns the text of a URL with percent-encoding for bytes that are not UTF-8.
    static func text(of bytes: [UInt8]) -> String { percentEncoded(ByteText.text(of: bytes)) }

    /// Percent-encodes bytes of an argument that are not UTF-8.
    static func percentEncoded(_ argument: String) -> String {
        guard ByteText.isMarked(argument) else { return argument }
        return argument.unicodeScalars.map { scalar in
            ByteText.byte(of: scalar).map { PercentEncoding.encoded([$0]) { _ in false } } ?? String(scalar)
        }.joined()
    }

    /// Percent-encodes characters beyond ASCII, as browsers do. Returns nil for a URL with spaces or control
    /// characters, and for one that exceeds the limit of the protocol.
    static func wire(_ text: String) -> String? {
        var result = text
        if !text.utf8.allSatisfy(\.isVisible) {
            guard text.utf8.allSatisfy({ $0.isVisible || $0 >= 0x80 }) else { return nil }
            result = PercentEncoding.encoded(text.utf8, where: \.isVisible)
        }
        return (1...8192).contains(result.utf8.count) ? result : nil
    }

    /// Removes all parts of a URL that may be secret: user information, query and fragment. `?...` replaces query and
    /// fragment.
    ///
    /// User information ends at the last at sign before the query, since passwords may contain slashes and at signs.
    /// `...@` replaces it if the removed text may include a part of the path.
    static func redacted(_ text: String) -> String {
        let bytes = text.utf8
        let end = bytes.firstIndex { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") } ?? bytes.endIndex
        let start = schemeEnd(bytes[..<end])
        let query = end == bytes.endIndex ? "" : "?..."
        let rest = bytes[start..<end]
        if let at = rest.lastIndex(of: UInt8(ascii: "@")) {
            let isPlain = !rest[..<at].contains(UInt8(ascii: "/"))
            return String(text[..<start]) + (isPlain ? "" : "...@") + text[bytes.index(after: at)..<end] + query
        }
        // The at sign may end a password that contains the question mark.
        guard bytes[end...].contains(UInt8(ascii: "@")), !isHost(rest) else { return text[..<end] + query }
        return text[..<start] + "..." + query
    }

    /// Returns the index after `scheme:` and slashes; the start without a scheme.
    private static func schemeEnd(_ text: Substring.UTF8View) -> String.Index {
        let scheme = text.prefix { $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "@") }
        let rest = text[scheme.endIndex...]
        guard !scheme.isEmpty, rest.starts(with: ":/".utf8) else { return text.startIndex }
        return rest.dropFirst().firstIndex { $0 != UInt8(ascii: "/") } ?? text.endIndex
    }

    /// Whether text begins with a host and an optional port.
    private static func isHost(_ text: Substring.UTF8View) -> Bool {
        let authority = text.prefix { $0 != UInt8(ascii: "/") }
        guard authority.first != UInt8(ascii: "["), let colon = authority.firstIndex(of: UInt8(ascii: ":")) else {
            return true
        }
        return authority[colon...].dropFirst().allSatisfy(\.isDigit)
    }
}
