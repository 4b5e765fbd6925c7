internal import EarshotHTTP
internal import EarshotWire

/// What is set, each value with the place it comes from.
///
/// Made from the weakest source to the strongest: what is applied later replaces what was there.
public struct Settings: Equatable, Sendable {
    /// Sources that are no file and no variable.
    public enum Source {
        /// Nobody said anything.
        public static let standard = "default"
        /// An argument of the process.
        public static let flag = "flag"
        /// A SET of a client.
        public static let set = "set"
    }

    /// One row of the list of settings.
    public struct Row: Equatable, Sendable {
        /// A `SettingName`, or `origin` or `address`.
        public let name: String
        /// Whom a rule is for; nil for what is no rule.
        public let pattern: String?
        /// As SET takes it; `-` for a number that nobody gives.
        public let value: String
        /// Where it comes from: one of `Source`, the path of a file, the name of a variable.
        public let source: String
    }

    private struct Sourced<Value: Equatable & Sendable>: Equatable, Sendable {
        var value: Value
        var source: String
    }

    /// Rules for origins at most: what a person can keep in a file.
    public static let mostRules = 1_000

    /// Rules for addresses at most: workers are told all of them in one head, each with up to 260 bytes.
    public static let mostAddressRules = 200

    private var numbers: [SettingName: Sourced<Int>] = [:]
    private var rules: [OriginPattern: Sourced<OriginRules.Terms>] = [:]
    /// Whether it is allowed to connect to these.
    private var addresses: [AddressRule.Subject: Sourced<Bool>] = [:]

    /// Defaults of the table, where a row refers to them those of `limits`. The number of workers, their slots and their
    /// memory have none: a pool of workers supplies them.
    public init(_ limits: CoreLimits = CoreLimits()) {
        for name in SettingName.allCases {
            numbers[name] = name.definition.initial(limits).map { Sourced(value: $0, source: Source.standard) }
        }
        rules = limits.origins.rules.mapValues { Sourced(value: $0, source: Source.standard) }
    }

    /// Value of a setting: a number, milliseconds, or the index of a word; nil for one of a pool that has none.
    public subscript(name: SettingName) -> Int? { numbers[name]?.value }

    /// Where a number comes from; nil if nobody gave it.
    public func source(of name: SettingName) -> String? { numbers[name]?.source }

    /// Takes a value that replaces the one there is.
    ///
    /// - Parameter source: where it comes from; control characters, which a path may have, are shown as `?`.
    public mutating func apply(_ change: SettingChange, source: String) throws(SettingError) {
        let source = String(
            String.UnicodeScalarView(
                source.unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7f ? "?" : $0 }))
        switch change {
        case .number(let name, let value): numbers[name] = Sourced(value: value, source: source)
        case .rule(let pattern, let terms):
            guard rules[pattern] != nil || rules.count < Self.mostRules else {
                throw SettingError("there are at most \(Self.mostRules) rules for origins")
            }
            rules[pattern] = Sourced(value: terms, source: source)
        case .noRule(let pattern): rules[pattern] = nil
        case .address(let subject, let isAllowing):
            guard addresses[subject] != nil || addresses.count < Self.mostAddressRules else {
                throw SettingError("there are at most \(Self.mostAddressRules) rules for addresses")
            }
            addresses[subject] = Sourced(value: isAllowing, source: source)
        case .noAddress(let subject): addresses[subject] = nil
        }
    }

    /// Returns `limits` with the settings of the core in them.
    func applied(to limits: CoreLimits) -> CoreLimits {
        var limits = limits
        for name in SettingName.allCases {
            guard let value = self[name] else { continue }
            switch name.definition.use {
            case .core(let path): limits[keyPath: path] = value
            case .permission(let path): limits[keyPath: path] = value == 0
            case .workers, .workersOptional, .supervisor, .lookedUp: break
            }
        }
        limits.origins.rules = rules.mapValues(\.value)
        return limits
    }

    /// Returns `limits` with the settings of workers in them.
    func applied(to limits: WorkerLimits) -> WorkerLimits {
        var limits = limits
        for name in SettingName.allCases {
            switch name.definition.use {
            case .workers(let path, _): limits[keyPath: path] = self[name] ?? limits[keyPath: path]
            case .workersOptional(let path, _): limits[keyPath: path] = self[name]
            case .core, .permission, .supervisor, .lookedUp: break
            }
        }
        limits.addressPolicy = addressPolicy
        return limits
    }

    /// Address policy as LIMITS has it; empty if all addresses are allowed.
    var addressPolicy: String {
        let preset = AddressPreset.allCases[self[.addressPolicy] ?? 0]
        let rules = sortedAddresses.map { AddressRule($0, isAllowing: $1.value).description }
        return ((preset == .all ? [] : [preset.rawValue]) + rules).joined(separator: ", ")
    }

    /// All settings: those of the table in its order, then the rules for origins and those for addresses, each by pattern.
    public var rows: [Row] {
        SettingName.allCases.map { name in
            let number = numbers[name]
            return Row(
                name: name.rawValue, pattern: nil, value: number.map { name.text($0.value) } ?? "-",
                source: number?.source ?? Source.standard)
        }
            + sortedRules.map { pattern, rule in
                Row(
                    name: SettingName.rule, pattern: pattern.description,
                    value: rule.value.words.joined(separator: " "), source: rule.source)
            }
            + sortedAddresses.map { subject, rule in
                Row(
                    name: SettingName.address, pattern: subject.description, value: rule.value ? "allow" : "deny",
                    source: rule.source)
            }
    }

    private var sortedAddresses: [(AddressRule.Subject, Sourced<Bool>)] {
        addresses.map { ($0.key, $0.value) }.sorted { $0.0.description < $1.0.description }
    }

    private var sortedRules: [(OriginPattern, Sourced<OriginRules.Terms>)] {
        rules.map { ($0.key, $0.value) }.sorted { $0.0.description < $1.0.description }
    }

    // MARK: Between the processes of a bus

    /// What follows the `lines` that a supervisor says to its broker, and how the broker answers.
    public static let end = "end"
    /// See `end`.
    public static let taken = "read"

    /// Lines that a supervisor sends to its broker: for each change its source, a tab and its words.
    public var lines: [String] {
        let all =
            SettingName.allCases.compactMap { name in
                numbers[name].map { (SettingChange.number(name, $0.value), $0.source) }
            } + sortedRules.map { (SettingChange.rule($0, $1.value), $1.source) }
            + sortedAddresses.map { (SettingChange.address($0, isAllowing: $1.value), $1.source) }
        return all.map { change, source in "\(source)\t\(change.words.joined(separator: " "))" }
    }

    /// What such lines say.
    public init(lines: [String]) throws(SettingError) {
        for line in lines {
            guard let tab = line.lastIndex(of: "\t") else { throw SettingError("a line of settings has no source") }
            let words = line[line.index(after: tab)...].split(separator: " ").map { String($0) }
            try apply(try SettingChange(words), source: String(line[..<tab]))
        }
    }
}
