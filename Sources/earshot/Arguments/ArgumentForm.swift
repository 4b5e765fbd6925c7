internal import EarshotWire

/// Forms of values, for the parser's messages about a value that it refuses without a reason.
enum ArgumentForm {
    /// Returns the message of the argument parser, with the wanted form after its first line.
    ///
    /// - Parameter message: text that begins with `Error: The value 'x' is invalid for '--option <placeholder>'`.
    static func completed(_ message: String) -> String {
        let end = message.firstIndex(of: "\n") ?? message.endIndex
        let line = message[..<end]
        guard line.hasPrefix("Error: The value '"), line.hasSuffix(">'"), let start = line.lastIndex(of: "<"),
            let name = line.firstRange(of: "' is invalid for '"), name.upperBound <= start
        else { return message }
        let placeholder = String(line[line.index(after: start)...].dropLast(2))
        let option = line[name.upperBound..<start].filter { $0 != " " }
        guard let form = forms[option] ?? forms["<\(placeholder)>"] else { return message }
        return "\(line); give \(form)\(message[end...])"
    }

    /// Forms by option, or by placeholder in angle brackets.
    private static let forms = [
        "--checksum": "sha256: and 64 hexadecimal digits",
        "--handler": handler,
        "<handler>": handler,
        "<id>": identifier,
        "<request>": identifier,
        "<n>": "a whole number",
        "<seconds>": "a number of seconds",
        "<slots>": "a whole number",
    ]

    private static let handler =
        "1 to \(WireLimits.handlerBytes) visible ASCII characters, with parts between slashes, such as gallery/1"
    private static let identifier = "1 to \(WireLimits.identifierBytes) visible ASCII characters"
}
