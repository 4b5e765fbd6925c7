internal import EarshotClient

/// File name in a Content-Disposition field: RFC 6266.
enum ContentDisposition {
    /// Returns the file name of `filename*`, else of `filename`, as a safe name without directories. Nil without one.
    static func fileName(_ value: String) -> String? {
        let parameters = parameters(value)
        if let extended = parameters.first(where: { $0.name == "filename*" })?.value,
            let text = decoded(extended), !text.isEmpty
        {
            return FileNames.safeName(lastPart(text))
        }
        guard let text = parameters.first(where: { $0.name == "filename" })?.value, !text.isEmpty else { return nil }
        return FileNames.safeName(lastPart(text))
    }

    private static func lastPart(_ path: String) -> String {
        String(path.split(whereSeparator: { $0 == "/" || $0 == "\\" }).last ?? "")
    }

    /// Splits at semicolons outside quoted strings, and removes quotes and escapes.
    private static func parameters(_ value: String) -> [(name: String, value: String)] {
        var parts: [(name: String, value: String)] = []
        var (name, text) = ("", "")
        var (isValue, isQuoted, isEscaped) = (false, false, false)
        func finish() {
            let isSpace: (Character) -> Bool = { $0 == " " || $0 == "\t" }
            let trimmed = String(name.drop(while: isSpace).reversed().drop(while: isSpace).reversed())
            if isValue { parts.append((trimmed.lowercased(), text)) }
            (name, text, isValue) = ("", "", false)
        }
        for scalar in value.unicodeScalars {
            if isEscaped {
                text.unicodeScalars.append(scalar)
                isEscaped = false
            } else if isQuoted {
                switch scalar {
                case "\\": isEscaped = true
                case "\"": isQuoted = false
                default: text.unicodeScalars.append(scalar)
                }
            } else {
                switch scalar {
                case ";": finish()
                case "=" where !isValue: isValue = true
                case "\"" where isValue: isQuoted = true
                case " ", "\t": if !isValue { name.unicodeScalars.append(scalar) }
                default:
                    if isValue { text.unicodeScalars.append(scalar) } else { name.unicodeScalars.append(scalar) }
                }
            }
        }
        finish()
        return parts
    }

    /// Decodes `UTF-8''percent-encoded` and `ISO-8859-1''percent-encoded`; nil for other text.
    private static func decoded(_ value: String) -> String? {
        let parts = value.split(separator: "'", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let bytes = bytes(parts[2]) else { return nil }
        switch parts[0].lowercased() {
        case "utf-8": return String(validating: bytes, as: UTF8.self)
        case "iso-8859-1": return String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        default: return nil
        }
    }

    private static func bytes(_ text: Substring) -> [UInt8]? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return bytes
    }
}
