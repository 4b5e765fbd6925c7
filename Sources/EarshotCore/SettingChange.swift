internal import EarshotWire

/// One setting that somebody gives a value, wherever it was written: in a file, as an argument, in a SET.
public enum SettingChange: Equatable, Sendable {
    /// In its range; a time in milliseconds.
    case number(SettingName, Int)
    /// A rule for some origins, in place of the one they had.
    case rule(OriginPattern, OriginRules.Terms)
    /// No rule for these any more.
    case noRule(OriginPattern)

    /// Bytes of a pattern: a scheme, the longest host name, a port.
    private static let patternBytes = 300
    /// Where a rule's terms get their bounds.
    private static let terms: [(word: String, name: SettingName)] = [
        ("limit", .originLimit), ("spacing", .originSpacing),
    ]

    /// What the words mean: a name and its number, `origin PATTERN limit=N spacing=S`, or `origin PATTERN default`.
    public init(_ words: [String]) throws(SettingError) {
        guard let first = words.first else { throw SettingName.unknown("") }
        if first == SettingName.rule {
            self = try Self.rule(words.dropFirst())
            return
        }
        guard let name = SettingName(rawValue: first) else { throw SettingName.unknown(first) }
        guard words.count == 2 else { throw SettingError("\(name.rawValue) takes one number, \(name.bounds)") }
        self = .number(name, try name.value(words[1]))
    }

    /// The same in normal form.
    public var words: [String] {
        switch self {
        case .number(let name, let value): [name.rawValue, name.text(value)]
        case .rule(let pattern, let terms): [SettingName.rule, pattern.description] + terms.words
        case .noRule(let pattern): [SettingName.rule, pattern.description, "default"]
        }
    }

    /// The same as it is said on the wire.
    var setting: SettingWords {
        guard let setting = SettingWords(words) else {
            // Numbers, and patterns in normal form, have no spaces and are not empty.
            preconditionFailure("the normal form \(words) cannot stand on a line")
        }
        return setting
    }

    /// What it gives a value to: of two changes with one subject the later one counts.
    public var subject: String {
        switch self {
        case .number(let name, _): name.rawValue
        case .rule(let pattern, _), .noRule(let pattern): "\(SettingName.rule) \(pattern)"
        }
    }

    private static func rule(_ words: ArraySlice<String>) throws(SettingError) -> SettingChange {
        guard let text = words.first, text.utf8.count <= patternBytes, let pattern = OriginPattern(text) else {
            throw SettingError("origin takes https://HOST:PORT, HOST or *.HOST, and then its rule")
        }
        let said = words.dropFirst()
        if said.elementsEqual(["default"]) { return .noRule(pattern) }
        var found: [String: Int] = [:]
        for word in said {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map { String($0) }
            guard parts.count == 2, let term = terms.first(where: { $0.word == parts[0] }),
                found[term.word] == nil
            else { throw ruleError }
            do throws(SettingError) {
                found[term.word] = try term.name.value(parts[1])
            } catch {
                throw SettingError("a rule's \(term.word) is \(term.name.bounds)")
            }
        }
        guard !found.isEmpty else { throw ruleError }
        return .rule(
            pattern, OriginRules.Terms(limit: found["limit"], spacingMilliseconds: found["spacing"]))
    }

    private static let ruleError = SettingError(
        "an origin's rule is limit=N or spacing=SECONDS or both, each once; or default for no rule")
}

extension OriginRules.Terms {
    /// As they are written in a rule, in normal form.
    var words: [String] {
        [limit.map { "limit=\($0)" }, spacingMilliseconds.map { "spacing=\(Seconds.text($0))" }].compactMap(\.self)
    }
}
