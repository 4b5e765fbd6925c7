internal import EarshotWire

/// Row of the table of settings: possible values, place of use, default and help.
struct SettingDefinition {
    /// Form of a value. Settings store each as an `Int`.
    enum ValueForm {
        /// A number in a range.
        case number(ClosedRange<Int>)
        /// A number of bytes in a range, parsed by `ByteCount`.
        case byteCount(ClosedRange<Int>)
        /// A time, written in seconds and stored in milliseconds.
        case milliseconds(ClosedRange<Int>)
        /// One of several words, stored as its index.
        case wordIndex([String])
    }

    /// Place where a value takes effect. It also supplies the default.
    enum SettingTarget {
        /// A limit of the core.
        case coreLimit(any WritableKeyPath<CoreLimits, Int> & Sendable)
        /// A quota of one user in the core's limits. Unless set it follows that of all users, as a quarter of it.
        case userQuota(any WritableKeyPath<CoreLimits, Int> & Sendable)
        /// A permission in the core's limits; the first of the two words grants it.
        case corePermission(any WritableKeyPath<CoreLimits, Bool> & Sendable)
        /// A field of LIMITS, and its default.
        case workerLimit(any WritableKeyPath<WorkerLimits, Int> & Sendable, Int)
        /// An optional field of LIMITS, and its default. Nil if the supervisor or the workers supply it.
        case optionalWorkerLimit(any WritableKeyPath<WorkerLimits, Int?> & Sendable, Int?)
        /// The supervisor, which has the default.
        case supervisorSetting
        /// Other code that reads the settings, and the default.
        case readByOtherCode(default: Int)
    }

    let valueForm: ValueForm
    let settingTarget: SettingTarget
    /// A noun phrase.
    let helpPhrase: String

    init(_ form: ValueForm, _ target: SettingTarget, help: String) {
        self.valueForm = form
        self.settingTarget = target
        self.helpPhrase = help
    }

    /// Returns the default; nil if the supervisor or the workers supply it.
    func defaultValue(_ limits: CoreLimits) -> Int? {
        switch settingTarget {
        case .coreLimit(let path), .userQuota(let path): limits[keyPath: path]
        case .corePermission(let path): limits[keyPath: path] ? 0 : 1
        case .workerLimit(_, let value), .readByOtherCode(let value): value
        case .optionalWorkerLimit(_, let value): value
        case .supervisorSetting: nil
        }
    }
}

extension SettingDefinition.ValueForm {
    /// Possible values as settings store them.
    var storedValueRange: ClosedRange<Int> {
        switch self {
        case .number(let range), .byteCount(let range), .milliseconds(let range): range
        case .wordIndex(let words): 0...words.count - 1
        }
    }

    /// Parses a value; nil for an invalid one.
    func parseValue(_ text: String) -> Int? {
        let value: Int? =
            switch self {
            case .number: Decimal.parse(text)
            case .byteCount: ByteCount.parse(text)
            case .milliseconds(let range): Seconds.parseMilliseconds(text, atMost: range.upperBound / 1_000)
            case .wordIndex(let words): words.firstIndex(of: text)
            }
        guard let value, storedValueRange.contains(value) else { return nil }
        return value
    }

    /// Returns a value in normal form.
    func valueText(_ value: Int) -> String {
        switch self {
        case .number, .byteCount: String(value)
        case .milliseconds: Seconds.text(milliseconds: value)
        case .wordIndex(let words): words[value]
        }
    }

    /// Description of the possible values for help and error messages.
    var possibleValuesDescription: String {
        switch self {
        case .number(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .byteCount(let range):
            "\(range.lowerBound) to \(range.upperBound), in bytes or with the suffix \(ByteCount.suffixList)"
        case .milliseconds(let range):
            "\(valueText(range.lowerBound)) to \(valueText(range.upperBound)) seconds, with at most 3 decimals"
        case .wordIndex(let words): words.joined(separator: " or ")
        }
    }
}
