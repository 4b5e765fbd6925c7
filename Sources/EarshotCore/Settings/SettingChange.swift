public import EarshotHTTP
internal import EarshotWire

/// Change of one setting or rule, from a file, an argument or a SET.
public enum SettingChange: Equatable, Sendable {
    /// Value of a setting in the table `SettingName.definition`, in its range: a number, milliseconds, or the index of
    /// a word.
    case number(SettingName, Int)
    /// Words of a setting in the table of `ListSettingName`.
    case list(ListSettingName, [String])
    /// Rule for an origin pattern; replaces an earlier rule.
    case rule(OriginPattern, OriginRules.Terms)
    /// Removal of the rule for an origin pattern.
    case noRule(OriginPattern)
    /// Rule for an address, a network or hosts; replaces an earlier rule.
    case address(AddressRule.Subject, isAllowing: Bool)
    /// Removal of the rule for an address, a network or hosts.
    case noAddress(AddressRule.Subject)

    /// Maximum bytes of a pattern: a scheme, the longest host name, a port.
    private static let patternBytes = 300
    /// Terms of a rule for origins, with the settings that define their values.
    public static let ruleTerms: KeyValuePairs<String, SettingName> = [
        "limit": .originLimit, "spacing": .originSpacing, "http2": .http2, "rate": .limitRate,
    ]

    /// Parses a name and its value, a name and its list, `origin PATTERN limit=N spacing=S`, `address SUBJECT allow`, …
    public init(_ words: [String]) throws(SettingError) {
        guard let first = words.first else { throw SettingName.unknown("") }
        switch first {
        case SettingName.rule:
            self = try Self.rule(words.dropFirst())
            return
        case SettingName.address:
            self = try Self.address(words.dropFirst())
            return
        default: break
        }
        if let name = ListSettingName(rawValue: first) {
            guard words.count == 2 else { throw SettingError("\(name.rawValue) takes one value: \(name.bounds)") }
            self = .list(name, try name.value(words[1]))
            return
        }
        guard let name = SettingName(rawValue: first) else { throw SettingName.unknown(first) }
        guard words.count == 2 else {
            throw SettingError("\(name.rawValue) takes one value: \(name.bounds)")
        }
        self = .number(name, try name.value(words[1]))
    }

    /// Words of the change in normal form.
    public var words: [String] {
        switch self {
        case .number(let name, let value): [name.rawValue, name.text(value)]
        case .list(let name, let words): [name.rawValue, name.text(words)]
        case .rule(let pattern, let terms): [SettingName.rule, pattern.description] + terms.words
        case .noRule(let pattern): [SettingName.rule, pattern.description, "default"]
        case .address(let subject, let isAllowing):
            [SettingName.address, subject.description, isAllowing ? "allow" : "deny"]
        case .noAddress(let subject): [SettingName.address, subject.description, "default"]
        }
    }

    /// The change as SET has it.
    var setting: SettingWords {
        guard let setting = SettingWords(words) else {
            // Numbers, and patterns in normal form, have no spaces and are not empty.
            preconditionFailure("the normal form \(words) cannot stand on a line")
        }
        return setting
    }

    /// Identifies the setting or rule. The later of two changes with one subject applies.
    public var subject: String {
        switch self {
        case .number(let name, _): name.rawValue
        case .list(let name, _): name.rawValue
        case .rule(let pattern, _), .noRule(let pattern): "\(SettingName.rule) \(pattern)"
        case .address(let subject, _), .noAddress(let subject): "\(SettingName.address) \(subject)"
        }
    }

    private static func rule(_ words: ArraySlice<String>) throws(SettingError) -> SettingChange {
        guard let text = words.first, text.utf8.count <= patternBytes, let pattern = OriginPattern(text) else {
            throw SettingError("origin takes https://HOST:PORT, HOST or *.HOST, followed by its rule")
        }
        let values = words.dropFirst()
        if values.elementsEqual(["default"]) { return .noRule(pattern) }
        var found: [String: Int] = [:]
        for word in values {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map { String($0) }
            guard parts.count == 2, let term = ruleTerms.first(where: { $0.key == parts[0] }),
                found[term.key] == nil
            else { throw ruleError }
            do throws(SettingError) {
                found[term.key] = try term.value.value(parts[1])
            } catch {
                throw SettingError("\(term.key) of a rule must be \(term.value.bounds)")
            }
        }
        guard !found.isEmpty else { throw ruleError }
        return .rule(
            pattern,
            OriginRules.Terms(
                limit: found["limit"], spacingMilliseconds: found["spacing"],
                allowsHTTP2: found["http2"].map { $0 == 0 }, rate: found["rate"]))
    }

    private static func address(_ words: ArraySlice<String>) throws(SettingError) -> SettingChange {
        let words = Array(words)
        guard words.count == 2, words[0].utf8.count <= patternBytes else {
            throw SettingError(
                "address takes a network, an address, HOST or *.HOST, followed by allow, deny or default")
        }
        let subject: AddressRule.Subject
        do throws(AddressPolicy.ParseError.Code) {
            subject = try AddressRule.Subject(words[0])
        } catch {
            guard case .hostBits(let network) = error else {
                throw SettingError("address takes a network (10.0.0.0/8, 2001:db8::/32), an address, HOST, *.HOST or *")
            }
            throw SettingError("the address is inside a network: write \(network), or the address without a slash")
        }
        switch words[1] {
        case "allow": return .address(subject, isAllowing: true)
        case "deny": return .address(subject, isAllowing: false)
        case "default": return .noAddress(subject)
        default: throw SettingError("an address takes allow, deny, or default for no rule")
        }
    }

    private static let ruleError = SettingError(
        "a rule takes limit=N, spacing=SECONDS, http2=auto or off and rate=SIZE, each at most once; or default for no rule"
    )
}

extension OriginRules.Terms {
    /// Words of a rule, in normal form.
    var words: [String] {
        [
            limit.map { "limit=\($0)" }, spacingMilliseconds.map { "spacing=\(Seconds.text($0))" },
            allowsHTTP2.map { "http2=\(SettingName.http2.text($0 ? 0 : 1))" }, rate.map { "rate=\($0)" },
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
