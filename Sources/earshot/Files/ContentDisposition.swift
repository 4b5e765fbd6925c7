internal import EarshotClient
internal import EarshotWire

/// File name in a Content-Disposition field: RFC 6266.
///
/// As browsers do, it permits spaces in a name without quotation marks, and reads bytes that are not UTF-8 as Latin-1.
enum ContentDisposition {
    /// Returns the file name of `filename*`, else of `filename`, as a safe name without directories. Nil without one.
    static func fileName(_ value: some Sequence<UInt8>) -> String? {
        let parameters = parameters(value)
        if let extended = parameters.first(where: { $0.name == "filename*" })?.value,
            let text = decodeExtendedValue(extended), !text.isEmpty
        {
            return SafeFileNames.safeName(lastPathComponent(text))
        }
        guard let bytes = parameters.first(where: { $0.name == "filename" })?.value, !bytes.isEmpty else { return nil }
        return SafeFileNames.safeName(
            lastPathComponent(String(validating: bytes, as: UTF8.self) ?? decodeLatin1(bytes)))
    }

    private static func lastPathComponent(_ path: String) -> String {
        String(path.split(whereSeparator: { $0 == "/" || $0 == "\\" }).last ?? "")
    }

    /// Splits at semicolons outside quoted strings, and removes quotes, escapes and the spaces around a value.
    private static func parameters(_ value: some Sequence<UInt8>) -> [(name: String, value: [UInt8])] {
        var parts: [(name: String, value: [UInt8])] = []
        var (name, text): ([UInt8], [UInt8]) = ([], [])
        var (isValue, isQuoted, isEscaped, wasQuoted) = (false, false, false, false)
        func finish() {
            let name = String(decoding: name[...].trimmed, as: UTF8.self).lowercased()
            if isValue { parts.append((name, wasQuoted ? text : Array(text[...].trimmed))) }
        }
        for byte in value {
            if isEscaped {
                text.append(byte)
                isEscaped = false
                continue
            }
            switch byte {
            case UInt8(ascii: "\\") where isQuoted: isEscaped = true
            case UInt8(ascii: "\""):
                if isQuoted {
                    isQuoted = false
                } else if isValue, !wasQuoted {
                    isQuoted = text[...].trimmed.isEmpty
                    wasQuoted = isQuoted
                    if isQuoted { text = [] } else { text.append(byte) }
                }
            case _ where isQuoted: text.append(byte)
            case UInt8(ascii: ";"):
                finish()
                (name, text, isValue, wasQuoted) = ([], [], false, false)
            case UInt8(ascii: "=") where !isValue: isValue = true
            // Nothing belongs to a value after its quotation.
            case _ where isValue: if !wasQuoted { text.append(byte) }
            default: name.append(byte)
            }
        }
        finish()
        return parts
    }

    private static func decodeLatin1(_ bytes: [UInt8]) -> String {
        String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
    }

    /// Decodes `UTF-8''percent-encoded` and `ISO-8859-1''percent-encoded`; nil for other text.
    private static func decodeExtendedValue(_ value: [UInt8]) -> String? {
        let text = String(decoding: value, as: UTF8.self)
        let parts = text.split(separator: "'", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, case (let bytes, true) = PercentEncoding.decoded(parts[2].utf8) else { return nil }
        switch parts[0].lowercased() {
        case "utf-8": return String(validating: bytes, as: UTF8.self)
        case "iso-8859-1": return decodeLatin1(bytes)
        default: return nil
        }
    }
}
