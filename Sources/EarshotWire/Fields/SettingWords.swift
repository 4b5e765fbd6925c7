/// A setting in its textual form: its name and the words of its value. The core interprets them.
public struct SettingWords: Equatable, Sendable, CustomStringConvertible {
    /// Two to `WireLimits.settingWords` words, the name first.
    public let words: [String]

    /// - Returns: nil for fewer than two or more than `WireLimits.settingWords` words. Also nil if a word is empty or
    ///   contains a space or a control character.
    public init?(_ words: [String]) {
        guard (2...WireLimits.settingWords).contains(words.count),
            words.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy { $0 > Ascii.space && $0 != 0x7f } })
        else { return nil }
        self.words = words
    }

    public var description: String { words.joined(separator: " ") }

    init(_ reader: HeadReader) throws(WireError) {
        guard let setting = SettingWords(reader.operands) else {
            throw WireError(
                .badMessage,
                "\(reader.verb.string) takes a setting's name and 1 to \(WireLimits.settingWords - 1) words")
        }
        self = setting
    }
}
