/// Width of text on a terminal, in columns, for the lines of `ProgressText`.
enum ColumnText {
    /// Scalars that take two columns: East Asian wide characters and emoji.
    private static let wideRanges: [ClosedRange<UInt32>] = [
        0x1100...0x115f, 0x2e80...0xa4cf, 0xac00...0xd7a3, 0xf900...0xfaff, 0xfe30...0xfe6f, 0xff00...0xff60,
        0xffe0...0xffe6, 0x1f300...0x1f64f, 0x1f900...0x1faff, 0x20000...0x3fffd,
    ]

    static func width(_ text: String) -> Int {
        text.unicodeScalars.reduce(0) { $0 + width($1) }
    }

    /// Returns text of at most `columns`. `...` replaces the middle of longer text.
    static func shortened(_ text: String, to columns: Int) -> String {
        guard width(text) > columns else { return text }
        guard columns > 8 else { return prefix(text.unicodeScalars, columns) }
        let head = (columns - 3) * 2 / 3
        let tail = prefix(text.unicodeScalars.reversed(), columns - 3 - head)
        let end = tail.unicodeScalars.reversed().map { String($0) }.joined()
        return prefix(text.unicodeScalars, head) + "..." + end
    }

    /// Returns text of exactly `columns`, with spaces at the end of shorter text.
    static func padded(_ text: String, to columns: Int) -> String {
        let text = shortened(text, to: columns)
        return text + String(repeating: " ", count: max(0, columns - width(text)))
    }

    private static func prefix(_ scalars: some Sequence<Unicode.Scalar>, _ columns: Int) -> String {
        var result = ""
        var used = 0
        for scalar in scalars {
            used += width(scalar)
            guard used <= columns else { break }
            result.unicodeScalars.append(scalar)
        }
        return result
    }

    private static func width(_ scalar: Unicode.Scalar) -> Int {
        if scalar.value < 0x300 { return 1 }
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format: return 0
        default: return wideRanges.contains { $0.contains(scalar.value) } ? 2 : 1
        }
    }
}
