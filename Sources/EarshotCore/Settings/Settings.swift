internal import EarshotHTTP
internal import EarshotWire

/// Effective values of all settings, each with its source.
///
/// Changes are applied from the source with the lowest precedence to the highest; a later value replaces an earlier
/// one.
public struct Settings: Equatable, Sendable {
    /// Sources other than files and environment variables.
    public enum SourceName {
        /// The built-in default.
        public static let builtInDefault = "default"
        /// A command-line option.
        public static let commandLineOption = "flag"
        /// SET of a client.
        public static let clientSet = "set"
    }

    /// Row of the list of settings.
    public struct SettingRow: Equatable, Sendable {
        /// Name of a setting, or `origin` or `address` for a rule.
        public let name: String
        /// Subject of a rule; nil for a setting.
        public let pattern: String?
        /// Value as SET accepts it; `-` for a setting without a value.
        public let value: String
        /// One of `SourceName`, the path of a file, or the name of an environment variable.
        public let source: String
    }

    private struct SourcedValue<Value: Equatable & Sendable>: Equatable, Sendable {
        var value: Value
        var source: String
    }

    /// Maximum number of rules for origins: as many as a user can maintain in a file.
    public static let maximumOriginRules = 1_000

    /// Maximum number of rules for addresses. LIMITS carries all of them in one head, each with up to 260 bytes.
    public static let maximumAddressRules = 200

    private var valuesByName: [SettingName: SourcedValue<Int>] = [:]
    /// Lists that a source names; all others are empty.
    private var listsByName: [ListSettingName: SourcedValue<[String]>] = [:]
    private var originRulesByPattern: [OriginPattern: SourcedValue<OriginRules.RuleTerms>] = [:]
    /// Whether connections to each subject are allowed.
    private var addressPermissionsBySubject: [AddressRule.Subject: SourcedValue<Bool>] = [:]

    /// Creates settings with the defaults of the table. A default that is a limit of the core is taken from `limits`.
    /// The number of workers, their slots and their memory have none: the supervisor or the workers supply them.
    public init(defaultsFrom limits: CoreLimits = CoreLimits()) {
        for name in SettingName.allCases {
            valuesByName[name] = name.definition.defaultValue(limits).map {
                SourcedValue(value: $0, source: SourceName.builtInDefault)
            }
        }
        originRulesByPattern = limits.originRules.rules.mapValues {
            SourcedValue(value: $0, source: SourceName.builtInDefault)
        }
    }

    /// Value of a setting: a number, milliseconds, or the index of a word; nil for a setting without a value.
    public subscript(name: SettingName) -> Int? { valuesByName[name]?.value }

    /// Words of a list; empty by default.
    public subscript(name: ListSettingName) -> [String] { listsByName[name]?.value ?? [] }

    /// Source of a setting's value; nil for a setting without a value.
    public func source(of name: SettingName) -> String? { valuesByName[name]?.source }

    /// Source of a list.
    public func source(of name: ListSettingName) -> String { listsByName[name]?.source ?? SourceName.builtInDefault }

    /// Applies a change, which replaces an earlier value or rule of the same subject.
    ///
    /// - Parameter source: where the value comes from. Control characters, which a path may contain, become `?`.
    public mutating func applyChange(_ change: SettingChange, source: String) throws(SettingError) {
        let source = String(
            String.UnicodeScalarView(
                source.unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7f ? "?" : $0 }))
        switch change {
        case .setValue(let name, let value): valuesByName[name] = SourcedValue(value: value, source: source)
        case .setList(let name, let words): listsByName[name] = SourcedValue(value: words, source: source)
        case .setOriginRule(let pattern, let terms):
            guard originRulesByPattern[pattern] != nil || originRulesByPattern.count < Self.maximumOriginRules else {
                throw SettingError("there are at most \(Self.maximumOriginRules) rules for origins")
            }
            originRulesByPattern[pattern] = SourcedValue(value: terms, source: source)
        case .removeOriginRule(let pattern): originRulesByPattern[pattern] = nil
        case .setAddressRule(let subject, let isAllowing):
            guard
                addressPermissionsBySubject[subject] != nil
                    || addressPermissionsBySubject.count < Self.maximumAddressRules
            else {
                throw SettingError("there are at most \(Self.maximumAddressRules) rules for addresses")
            }
            addressPermissionsBySubject[subject] = SourcedValue(value: isAllowing, source: source)
        case .removeAddressRule(let subject): addressPermissionsBySubject[subject] = nil
        }
    }

    /// Returns `limits` with the settings of the core.
    func coreLimits(from limits: CoreLimits) -> CoreLimits {
        var limits = limits
        for name in SettingName.allCases {
            guard let value = self[name] else { continue }
            switch name.definition.settingTarget {
            case .coreLimit(let path): limits[keyPath: path] = value
            case .corePermission(let path): limits[keyPath: path] = value == 0
            case .userQuota, .workerLimit, .optionalWorkerLimit, .supervisorSetting, .readByOtherCode: break
            }
        }
        for name in SettingName.allCases {
            guard case .userQuota(let path) = name.definition.settingTarget, let value = self[name] else { continue }
            let isSet = source(of: name) != SourceName.builtInDefault && (value > 0 || name != .transfersPerUser)
            limits[keyPath: path] = isSet ? value : QuotaBook.principalPart(of: amountSharedByUsers(name, limits))
        }
        limits.originRules.rules = originRulesByPattern.mapValues(\.value)
        return limits
    }

    /// Returns the amount that all users share, of which a setting bounds one user's part; 0 if it is unknown.
    private func amountSharedByUsers(_ quota: SettingName, _ limits: CoreLimits) -> Int {
        switch quota {
        case .requestsPerUser: limits.maximumOpenRequests
        case .transfersPerUser: (self[.workers] ?? 0) * (self[.slots] ?? 0)
        case .spoolPerUser: limits.maximumSpoolBytes
        case .durablePerUser: self[.durableSize] ?? 0
        default: 0
        }
    }

    /// Returns `limits` with the settings of workers.
    func workerLimits(from limits: WorkerLimits) -> WorkerLimits {
        var limits = limits
        for name in SettingName.allCases {
            switch name.definition.settingTarget {
            case .workerLimit(let path, _): limits[keyPath: path] = self[name] ?? limits[keyPath: path]
            case .optionalWorkerLimit(let path, _): limits[keyPath: path] = self[name]
            case .coreLimit, .userQuota, .corePermission, .supervisorSetting, .readByOtherCode: break
            }
        }
        limits.addressPolicy = addressPolicyText
        return limits
    }

    /// Address policy for LIMITS; empty if all addresses are allowed.
    var addressPolicyText: String {
        let preset = AddressPreset.allCases[self[.addressPolicy] ?? 0]
        let rules = sortedAddressRules.map { AddressRule($0, isAllowing: $1.value).description }
        return ((preset == .all ? [] : [preset.rawValue]) + rules).joined(separator: ", ")
    }

    /// All settings in the order of the table, then the lists, the rules for origins and those for addresses, each
    /// sorted by subject.
    public var rows: [SettingRow] {
        SettingName.allCases.map { name in
            let number = valuesByName[name]
            return SettingRow(
                name: name.rawValue, pattern: nil, value: number.map { name.valueText($0.value) } ?? "-",
                source: number?.source ?? SourceName.builtInDefault)
        }
            + ListSettingName.allCases.map { name in
                SettingRow(
                    name: name.rawValue, pattern: nil, value: name.listText(self[name]), source: source(of: name))
            }
            + sortedOriginRules.map { pattern, rule in
                SettingRow(
                    name: SettingName.originRuleKeyword, pattern: pattern.description,
                    value: rule.value.normalizedWords.joined(separator: " "), source: rule.source)
            }
            + sortedAddressRules.map { subject, rule in
                SettingRow(
                    name: SettingName.addressRuleKeyword, pattern: subject.description,
                    value: rule.value ? "allow" : "deny", source: rule.source)
            }
    }

    private var sortedAddressRules: [(AddressRule.Subject, SourcedValue<Bool>)] {
        addressPermissionsBySubject.map { ($0.key, $0.value) }.sorted { $0.0.description < $1.0.description }
    }

    private var sortedOriginRules: [(OriginPattern, SourcedValue<OriginRules.RuleTerms>)] {
        originRulesByPattern.map { ($0.key, $0.value) }.sorted { $0.0.description < $1.0.description }
    }

    // MARK: Between the processes of a bus

    /// Line after the `supervisorLines` that the supervisor sends to its broker.
    public static let endOfSettingsLine = "end"
    /// Line with which the broker confirms the `supervisorLines`.
    public static let confirmationLine = "read"

    /// Lines that the supervisor sends to its broker: the source of each change, a tab, and its words.
    public var supervisorLines: [String] {
        let all =
            SettingName.allCases.compactMap { name in
                valuesByName[name].map { (SettingChange.setValue(name, $0.value), $0.source) }
            }
            + ListSettingName.allCases.compactMap { name in
                listsByName[name].map { (SettingChange.setList(name, $0.value), $0.source) }
            }
            + sortedOriginRules.map { (SettingChange.setOriginRule($0, $1.value), $1.source) }
            + sortedAddressRules.map { (SettingChange.setAddressRule($0, isAllowing: $1.value), $1.source) }
        return all.map { change, source in "\(source)\t\(change.normalizedWords.joined(separator: " "))" }
    }

    /// Parses `supervisorLines`.
    public init(supervisorLines: [String]) throws(SettingError) {
        for line in supervisorLines {
            guard let tab = line.lastIndex(of: "\t") else { throw SettingError("a line of settings has no source") }
            let words = line[line.index(after: tab)...].split(separator: " ").map { String($0) }
            try applyChange(try SettingChange(words: words), source: String(line[..<tab]))
        }
    }
}
