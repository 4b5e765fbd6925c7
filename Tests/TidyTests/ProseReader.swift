/// Splits lines of prose into tokens.
struct ProseReader {
    private(set) var tokens: [(token: Prose.Token, line: Int)] = []
    private var isInFence = false
    private var isInSpan = false

    /// Reads one line without its comment marker.
    mutating func read(_ line: String, number: Int) {
        let text = line.trimmed
        if text.hasPrefix("```") {
            isInFence.toggle()
            isInSpan = false
        }
        guard !isInFence, !text.isEmpty, !text.hasPrefix("```") else {
            isInSpan = false
            return add(.stop, number)
        }
        if Self.beginsItem(text) { add(.stop, number) }
        var rest = Substring(text).utf8
        while let byte = rest.first {
            switch byte {
            case UInt8(ascii: "`"):
                rest = rest.drop { $0 == byte }
                if !isInSpan { add(.word("code"), number) }
                isInSpan.toggle()
            case _ where isInSpan: rest.removeFirst()
            case _ where Self.isWordPart(byte) && byte != UInt8(ascii: "'") && byte != UInt8(ascii: "-"):
                let word = rest.prefix(while: Self.isWordPart)
                rest = rest.dropFirst(word.count)
                add(.word(String(Substring(word)).lowercased()), number)
            case UInt8(ascii: "]") where rest.dropFirst().first == UInt8(ascii: "("):
                // The target of a link.
                rest = rest.drop { $0 != UInt8(ascii: ")") }
            case UInt8(ascii: "."), UInt8(ascii: "!"), UInt8(ascii: "?"):
                rest.removeFirst()
                let isEnd = rest.first.map { $0 == UInt8(ascii: " ") || Self.closing.contains($0) } ?? true
                add(isEnd ? .stop : .pause, number)
            case UInt8(ascii: ","), UInt8(ascii: ";"), UInt8(ascii: ":"), UInt8(ascii: "("), UInt8(ascii: ")"):
                rest.removeFirst()
                add(.pause, number)
            default: rest.removeFirst()
            }
        }
    }

    /// Marks that may follow the full stop of a sentence.
    private static let closing = Set("\")*_".utf8)

    private static func isWordPart(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "'"), UInt8(ascii: "-"), 0x80...:
            true
        default: false
        }
    }

    /// Whether a line begins an item of a list: `- `, `* `, `+ ` or `1. `.
    private static func beginsItem(_ text: String) -> Bool {
        guard let space = text.firstIndex(of: " ") else { return false }
        let marker = text[..<space]
        if ["-", "*", "+"].contains(marker) { return true }
        return marker.last == "." && marker.count > 1 && marker.dropLast().allSatisfy(\.isWholeNumber)
    }

    private mutating func add(_ token: Prose.Token, _ line: Int) {
        tokens.append((token, line))
    }
}
