internal import EarshotHTTP
internal import EarshotWire

/// Effective values of all settings, each with its source.
///
/// Changes are applied from the source with the lowest precedence to the highest; a later value replaces an earlier
/// one.
public struct Settings: Equatable, Sendable {
    /// Sources other than files and environment variables.
    public enum Source {
        /// The built-in default.
        public static let standard = "default"
        /// A command-line option.
        public static let flag = "flag"
        /// SET of a client.
        public static let set = "set"
    }

    /// Row of the list of settings.
    public struct Row: Equatable, Sendable {
        /// Name of a setting, or `origin` or `address` for a rule.
        public let name: String
        /// Subject of a rule; nil for a setting.
        public let pattern: String?
        /// Value as SET accepts it; `-` for a setting without a value.
        public let value: String
        /// One of `Source`, the path of a file, or the name of an environment variable.
        public let source: String
    }

    private struct Sourced<Value: Equatable & Sendable>: Equatable, Sendable {
        var value: Value
        var source: String
    }

    /// Maximum number of rules for origins: as many as a user can maintain in a file.
    public static let mostRules = 1_000

    /// Maximum number of rules for addresses. LIMITS carries all of them in one head, each with up to 260 bytes.
    public static let mostAddressRules = 200

    private var numbers: [SettingName: Sourced<Int>] = [:]
    /// Lists that a source names; all others are empty.
    private var lists: [ListSettingName: Sourced<[String]>] = [:]
    private var rules: [OriginPattern: Sourced<OriginRules.Terms>] = [:]
    /// Whether connections to each subject are allowed.
    private var addresses: [AddressRule.Subject: Sourced<Bool>] = [:]

    /// Creates settings with the defaults of the table. A default that is a limit of the core is taken from `limits`.
    /// The number of workers, their slots and their memory have none: the supervisor or the workers supply them.
    public init(_ limits: CoreLimits = CoreLimits()) {
        for name in SettingName.allCases {
            numbers[name] = name.definition.defaultValue(limits).map { Sourced(value: $0, source: Source.standard) }
        }
        rules = limits.origins.rules.mapValues { Sourced(value: $0, source: Source.standard) }
    }

    /// Value of a setting: a number, milliseconds, or the index of a word; nil for a setting without a value.
    public subscript(name: SettingName) -> Int? { numbers[name]?.value }

    /// Words of a list; empty by default.
    public subscript(name: ListSettingName) -> [String] { lists[name]?.value ?? [] }

    /// Source of a setting's value; nil for a setting without a value.
    public func source(of name: SettingName) -> String? { numbers[name]?.source }

    /// Source of a list.
    public func source(of name: ListSettingName) -> String { lists[name]?.source ?? Source.standard }

    /// Applies a change, which replaces an earlier value or rule of the same subject.
    ///
    /// - Parameter source: where the value comes from. Control characters, which a path may contain, become `?`.
    public mutating func apply(_ change: SettingChange, source: String) throws(SettingError) {
        let source = String(
            String.UnicodeScalarView(
                source.unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7f ? "?" : $0 }))
        switch change {
        case .number(let name, let value): numbers[name] = Sourced(value: value, source: source)
        case .list(let name, let words): lists[name] = Sourced(value: words, source: source)
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

    /// Returns `limits` with the settings of the core.
    func applied(to limits: CoreLimits) -> CoreLimits {
        var limits = limits
        for name in SettingName.allCases {
            guard let value = self[name] else { continue }
            switch name.definition.use {
            case .core(let path): limits[keyPath: path] = value
            case .permission(let path): limits[keyPath: path] = value == 0
            case .quota, .workers, .workersOptional, .supervisor, .lookedUp: break
            }
        }
        for name in SettingName.allCases {
            guard case .quota(let path) = name.definition.use, let value = self[name] else { continue }
            let isSet = source(of: name) != Source.standard && (value > 0 || name != .transfersPerUser)
            limits[keyPath: path] = isSet ? value : QuotaBook.part(of: shared(name, limits))
        }
        limits.origins.rules = rules.mapValues(\.value)
        return limits
    }

    /// What all users share of that of which a setting bounds one user's part; 0 if that is unknown.
    private func shared(_ quota: SettingName, _ limits: CoreLimits) -> Int {
        switch quota {
        case .requestsPerUser: limits.requests
        case .transfersPerUser: (self[.workers] ?? 0) * (self[.slots] ?? 0)
        case .spoolPerUser: limits.spoolBytes
        case .durablePerUser: self[.durableSize] ?? 0
        default: 0
        }
    }

    /// Returns `limits` with the settings of workers.
    func applied(to limits: WorkerLimits) -> WorkerLimits {
        var limits = limits
        for name in SettingName.allCases {
            switch name.definition.use {
            case .workers(let path, _): limits[keyPath: path] = self[name] ?? limits[keyPath: path]
            case .workersOptional(let path, _): limits[keyPath: path] = self[name]
            case .core, .quota, .permission, .supervisor, .lookedUp: break
            }
        }
        limits.addressPolicy = addressPolicy
        return limits
    }

    /// Address policy for LIMITS; empty if all addresses are allowed.
    var addressPolicy: String {
        let preset = AddressPreset.allCases[self[.addressPolicy] ?? 0]
        let rules = sortedAddresses.map { AddressRule($0, isAllowing: $1.value).description }
        return ((preset == .all ? [] : [preset.rawValue]) + rules).joined(separator: ", ")
    }

    /// All settings in the order of the table, then the lists, the rules for origins and those for addresses, each sorted
    /// by subject.
    public var rows: [Row] {
        SettingName.allCases.map { name in
            let number = numbers[name]
            return Row(
                name: name.rawValue, pattern: nil, value: number.map { name.text($0.value) } ?? "-",
                source: number?.source ?? Source.standard)
        }
            + ListSettingName.allCases.map { name in
                Row(
                    name: name.rawValue, pattern: nil, value: name.text(self[name]),
                    source: source(of: name))
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

    /// Line after the `lines` that the supervisor sends to its broker.
    public static let end = "end"
    /// Line with which the broker confirms them.
    public static let confirmation = "read"

    /// Lines that the supervisor sends to its broker: the source of each change, a tab, and its words.
    public var lines: [String] {
        let all =
            SettingName.allCases.compactMap { name in
                numbers[name].map { (SettingChange.number(name, $0.value), $0.source) }
            }
            + ListSettingName.allCases.compactMap { name in
                lists[name].map { (SettingChange.list(name, $0.value), $0.source) }
            }
            + sortedRules.map { (SettingChange.rule($0, $1.value), $1.source) }
            + sortedAddresses.map { (SettingChange.address($0, isAllowing: $1.value), $1.source) }
        return all.map { change, source in "\(source)\t\(change.words.joined(separator: " "))" }
    }

    /// Parses `lines`.
    public init(lines: [String]) throws(SettingError) {
        for line in lines {
            guard let tab = line.lastIndex(of: "\t") else { throw SettingError("a line of settings has no source") }
            let words = line[line.index(after: tab)...].split(separator: " ").map { String($0) }
            try apply(try SettingChange(words), source: String(line[..<tab]))
        }
    }
}
