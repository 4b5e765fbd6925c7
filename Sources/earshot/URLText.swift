internal import EarshotLoop

/// A URL as it was typed or listed, made fit for the wire.
enum URLText {
    /// The text of a URL whose bytes need not be UTF-8: such bytes with percent signs.
    static func text(of bytes: [UInt8]) -> String { percentEncoded(ByteText.text(of: bytes)) }

    /// The same for an argument.
    static func percentEncoded(_ argument: String) -> String {
        guard ByteText.isMarked(argument) else { return argument }
        return argument.unicodeScalars.map { scalar in
            ByteText.byte(of: scalar).map { "%" + String($0, radix: 16, uppercase: true) } ?? String(scalar)
        }.joined()
    }

    /// Characters beyond ASCII as percent signs, as browsers send them. Nil if it holds spaces or controls, or is too
    /// long to be said.
    static func wire(_ text: String) -> String? {
        var result = text
        if !text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) {
            result = ""
            for byte in text.utf8 {
                switch byte {
                case 0x21...0x7e: result.unicodeScalars.append(Unicode.Scalar(byte))
                case 0x80...: result += "%" + String(byte, radix: 16, uppercase: true)
                default: return nil
                }
            }
        }
        return (1...8192).contains(result.utf8.count) ? result : nil
    }

    /// A URL, or what was given as one, without what may be secret in it: user information, query and fragment, of
    /// which `?...` is left.
    static func discreet(_ text: String) -> String {
        let end = text.firstIndex { $0 == "?" || $0 == "#" } ?? text.endIndex
        var shown = text[..<end]
        let authority = shown.firstRange(of: "://")?.upperBound ?? shown.startIndex
        let authorityEnd = shown[authority...].firstIndex(of: "/") ?? shown.endIndex
        // A browser takes a backslash for a slash, and people write an at sign into a password: the last one counts.
        if let at = shown[authority..<authorityEnd].lastIndex(of: "@") {
            shown = shown[..<authority] + shown[shown.index(after: at)...]
        }
        return shown + (end == text.endIndex ? "" : "?...")
    }
}
