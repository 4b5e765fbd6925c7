/// Reads the string literals of Swift code as prose. An interpolation becomes a code span.
struct LiteralReader {
    private var isInMultilineLiteral = false

    /// Returns the texts of a line's literals, each with a full stop. Literals of one word are identifiers and are left
    /// out.
    mutating func texts(of line: String) -> String {
        var rest = Substring(line)
        var texts: [String] = []
        while !rest.isEmpty {
            if isInMultilineLiteral {
                texts.append(literal(&rest, upTo: "\"\"\""))
                if rest.hasPrefix("\"\"\"") {
                    isInMultilineLiteral = false
                    rest.removeFirst(3)
                }
            } else if rest.hasPrefix("//") {
                break
            } else if rest.hasPrefix("\"\"\"") {
                isInMultilineLiteral = true
                rest.removeFirst(3)
            } else if rest.hasPrefix("\"") {
                rest.removeFirst()
                let text = literal(&rest, upTo: "\"")
                rest = rest.dropFirst()
                if text.contains(" ") { texts.append(text + ".") }
            } else {
                rest.removeFirst()
            }
        }
        return texts.joined(separator: " ")
    }

    private func literal(_ rest: inout Substring, upTo end: String) -> String {
        var text = ""
        while let character = rest.first, !rest.hasPrefix(end) {
            rest.removeFirst()
            guard character == "\\", let escaped = rest.first else {
                text.append(character)
                continue
            }
            rest.removeFirst()
            guard escaped == "(" else { continue }
            text += "`x`"
            var depth = 1
            while depth > 0, let inner = rest.popFirst() {
                depth += inner == "(" ? 1 : inner == ")" ? -1 : 0
            }
        }
        return text
    }
}
