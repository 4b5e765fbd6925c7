import Foundation

/// Links and anchors of a Markdown document, without those in code.
struct Markdown {
    /// Targets of links and images: inline, by reference, and of HTML elements.
    let links: [String]
    /// Names that a link can have after `#`.
    let anchors: Set<String>

    init(_ text: String) {
        var links: [String] = []
        var anchors: Set<String> = []
        var count: [String: Int] = [:]
        var fence: Substring?
        for line in text.split(separator: "\n") {
            let start = line.drop { $0 == " " }
            if let opened = fence {
                if start.hasPrefix(opened) { fence = nil }
                continue
            }
            if start.hasPrefix("```") || start.hasPrefix("~~~") {
                fence = start.prefix { $0 == start.first }
                continue
            }
            if line.hasPrefix("#") {
                let anchor = Self.anchor(of: line.drop { $0 == "#" })
                // A repeated heading gets a number.
                let repeats = count[anchor, default: 0]
                count[anchor] = repeats + 1
                anchors.insert(repeats == 0 ? anchor : "\(anchor)-\(repeats)")
            }
            // Most lines have no link: a search is faster than an expression.
            let isLinking = line.utf8.contains(UInt8(ascii: "]")) || line.contains("=\"")
            guard isLinking else { continue }
            let prose = String(line).replacing(/`[^`]*`/, with: "")
            links += prose.matches(of: /\]\(<?([^()\s<>]*(?:\([^()\s]*\))?[^()\s<>]*)>?(?:\s+"[^"]*")?\)/).map {
                String($0.1)
            }
            links += prose.matches(of: /^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?/).map { String($0.1) }
            links += prose.matches(of: /\b(?:href|src)="([^"]+)"/).map { String($0.1) }
            anchors.formUnion(prose.matches(of: /\b(?:id|name)="([^"]+)"/).map { String($0.1) })
        }
        self.links = links
        self.anchors = anchors
    }

    /// Returns the anchor that derives from the text of a heading.
    private static func anchor(of heading: Substring) -> String {
        let text = String(heading).replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.output.1 }.trimmingCharacters(
            in: .whitespaces)
        return text.lowercased().filter { $0.isLetter || $0.isNumber || $0 == " " || $0 == "-" || $0 == "_" }
            .replacing(" ", with: "-")
    }
}
