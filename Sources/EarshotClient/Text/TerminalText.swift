internal import EarshotLoop

/// Escaping of untrusted text for terminals, logs and file names.
package enum TerminalText {
    /// Returns `text` with each scalar of ``isControl(_:)`` as `\u{…}` and each byte that is not UTF-8 as `\x…`. The
    /// result cannot control a terminal or imitate other text.
    package static func escaped(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        var result = ""
        for scalar in text.unicodeScalars {
            if let byte = ByteText.byte(of: scalar) {
                result += "\\x\(String(byte, radix: 16))"
            } else if isControl(scalar) {
                result += "\\u{\(String(scalar.value, radix: 16))}"
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    /// Returns whether a scalar is invisible or changes the text around it: controls, line and paragraph separators,
    /// format characters (zero-width, direction, tags), noncharacters, and marks of `ByteText`.
    ///
    /// These include joiners in emoji and some scripts, whose text is readable without them. The sixteen variation
    /// selectors that choose between text and emoji are excluded.
    package static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        // Fast path for ASCII.
        if scalar.value < 0x7f { return scalar.value < 0x20 }
        let properties = scalar.properties
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: return true
        case .privateUse: return ByteText.byte(of: scalar) != nil
        // Other unassigned code points may become letters in a later version of Unicode.
        case .unassigned: return properties.isNoncharacterCodePoint || properties.isDefaultIgnorableCodePoint
        default: return properties.isDefaultIgnorableCodePoint && !(0xfe00...0xfe0f).contains(scalar.value)
        }
    }
}
