public import EarshotHTTP
internal import EarshotWire

/// Change of one setting or rule, from a file, an argument or a SET.
public enum SettingChange: Equatable, Sendable {
    /// Value of a setting in the table `SettingName.definition`, in its range: a number, milliseconds, or the index of
    /// a word.
    case setValue(SettingName, Int)
    /// Words of a setting in the table of `ListSettingName`.
    case setList(ListSettingName, [String])
    /// Rule for an origin pattern; replaces an earlier rule.
    case setOriginRule(OriginPattern, OriginRules.RuleTerms)
    /// Removal of the rule for an origin pattern.
    case removeOriginRule(OriginPattern)
    /// Rule for an address, a network or hosts; replaces an earlier rule.
    case setAddressRule(AddressRule.Subject, isAllowing: Bool)
    /// Removal of the rule for an address, a network or hosts.
    case removeAddressRule(AddressRule.Subject)

    /// Maximum bytes of a pattern: a scheme, the longest host name, a port.
    private static let maximumPatternBytes = 300
    /// Terms of a rule for origins, with the settings that define their values.
    public static let settingsByRuleTerm: KeyValuePairs<String, SettingName> = [
        "limit": .originLimit, "spacing": .originSpacing, "http2": .http2, "rate": .limitRate,
    ]

    /// Parses a name and its value, a name and its list, `origin PATTERN limit=N spacing=S`, `address SUBJECT allow`, …
    public init(words: [String]) throws(SettingError) {
        guard let first = words.first else { throw SettingName.unknownNameError("") }
        switch first {
        case SettingName.originRuleKeyword:
            self = try Self.parseOriginRule(words.dropFirst())
            return
        case SettingName.addressRuleKeyword:
            self = try Self.parseAddressRule(words.dropFirst())
            return
        default: break
        }
        if let name = ListSettingName(rawValue: first) {
            guard words.count == 2 else {
                throw SettingError("\(name.rawValue) takes one value: \(name.possibleValuesDescription)")
            }
            self = .setList(name, try name.parseWords(words[1]))
            return
        }
        guard let name = SettingName(rawValue: first) else { throw SettingName.unknownNameError(first) }
        guard words.count == 2 else {
            throw SettingError("\(name.rawValue) takes one value: \(name.possibleValuesDescription)")
        }
        self = .setValue(name, try name.parseValue(words[1]))
    }

    /// Words of the change in normal form.
    public var normalizedWords: [String] {
        switch self {
        case .setValue(let name, let value): [name.rawValue, name.valueText(value)]
        case .setList(let name, let words): [name.rawValue, name.listText(words)]
        case .setOriginRule(let pattern, let terms):
            [SettingName.originRuleKeyword, pattern.description] + terms.normalizedWords
        case .removeOriginRule(let pattern): [SettingName.originRuleKeyword, pattern.description, "default"]
        case .setAddressRule(let subject, let isAllowing):
            [SettingName.addressRuleKeyword, subject.description, isAllowing ? "allow" : "deny"]
        case .removeAddressRule(let subject): [SettingName.addressRuleKeyword, subject.description, "default"]
        }
    }

    /// The change in the form that SET carries.
    var settingWords: SettingWords {
        guard let setting = SettingWords(normalizedWords) else {
            // Numbers, and patterns in normal form, have no spaces and are not empty.
            preconditionFailure("the normal form \(normalizedWords) cannot stand on a line")
        }
        return setting
    }

    /// Identifies the setting or rule. The later of two changes with one subject applies.
    public var replacementKey: String {
        switch self {
        case .setValue(let name, _): name.rawValue
        case .setList(let name, _): name.rawValue
        case .setOriginRule(let pattern, _), .removeOriginRule(let pattern):
            "\(SettingName.originRuleKeyword) \(pattern)"
        case .setAddressRule(let subject, _), .removeAddressRule(let subject):
            "\(SettingName.addressRuleKeyword) \(subject)"
        }
    }

    private static func parseOriginRule(_ words: ArraySlice<String>) throws(SettingError) -> SettingChange {
        guard let text = words.first, text.utf8.count <= maximumPatternBytes, let pattern = OriginPattern(text) else {
            throw SettingError("origin takes https://HOST:PORT, HOST or *.HOST, followed by its rule")
        }
        let values = words.dropFirst()
        if values.elementsEqual(["default"]) { return .removeOriginRule(pattern) }
        var found: [String: Int] = [:]
        for word in values {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map { String($0) }
            guard parts.count == 2, let term = settingsByRuleTerm.first(where: { $0.key == parts[0] }),
                found[term.key] == nil
            else { throw invalidRuleError }
            do throws(SettingError) {
                found[term.key] = try term.value.parseValue(parts[1])
            } catch {
                throw SettingError("\(term.key) of a rule must be \(term.value.possibleValuesDescription)")
            }
        }
        guard !found.isEmpty else { throw invalidRuleError }
        let terms = OriginRules.RuleTerms(
            maximumTransfers: found["limit"], spacingMilliseconds: found["spacing"],
            allowsHTTP2: found["http2"].map { $0 == 0 }, maximumBytesPerSecond: found["rate"])
        return .setOriginRule(pattern, terms)
    }

    private static func parseAddressRule(_ words: ArraySlice<String>) throws(SettingError) -> SettingChange {
        let words = Array(words)
        guard words.count == 2, words[0].utf8.count <= maximumPatternBytes else {
            throw SettingError(
                "address takes a network, an address, HOST or *.HOST, followed by allow, deny or default")
        }
        let subject: AddressRule.Subject
        do throws(AddressPolicy.ParseError.Code) {
            subject = try AddressRule.Subject(words[0])
        } catch {
            guard case .nonzeroHostBits(let network) = error else {
                throw SettingError("address takes a network (10.0.0.0/8, 2001:db8::/32), an address, HOST, *.HOST or *")
            }
            throw SettingError("the address is inside a network: write \(network), or the address without a slash")
        }
        switch words[1] {
        case "allow": return .setAddressRule(subject, isAllowing: true)
        case "deny": return .setAddressRule(subject, isAllowing: false)
        case "default": return .removeAddressRule(subject)
        default: throw SettingError("an address takes allow, deny, or default for no rule")
        }
    }

    private static let invalidRuleError = SettingError(
        "a rule takes limit=N, spacing=SECONDS, http2=auto or off and rate=SIZE, each at most once; or default for no rule"
    )
}

extension OriginRules.RuleTerms {
    /// Words of a rule, in normal form.
    var normalizedWords: [String] {
        [
            maximumTransfers.map { "limit=\($0)" },
            spacingMilliseconds.map { "spacing=\(Seconds.text(milliseconds: $0))" },
            allowsHTTP2.map { "http2=\(SettingName.http2.valueText($0 ? 0 : 1))" },
            maximumBytesPerSecond.map { "rate=\($0)" },
        ].compactMap(\.self)
    }
}

/// Reason why a setting was rejected: a sentence about the possible values, without text from the input.
public struct SettingError: Error, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) {
        self.description = description
    }
}
