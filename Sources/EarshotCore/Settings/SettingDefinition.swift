internal import EarshotWire

/// Row of the table of settings: possible values, place of use, default and help.
struct SettingDefinition {
    /// Form of a value. Settings store each as an `Int`.
    enum Form {
        /// A number in a range.
        case number(ClosedRange<Int>)
        /// A number of bytes in a range, parsed by `ByteCount`.
        case size(ClosedRange<Int>)
        /// A time, written in seconds and stored in milliseconds.
        case time(ClosedRange<Int>)
        /// One of several words, stored as its index.
        case word([String])
    }

    /// Place where a value takes effect. It also supplies the default.
    enum Use {
        /// A limit of the core.
        case core(any WritableKeyPath<CoreLimits, Int> & Sendable)
        /// A quota of one user in the core's limits. Unless set it follows that of all users, as a quarter of it.
        case quota(any WritableKeyPath<CoreLimits, Int> & Sendable)
        /// A permission in the core's limits; the first of the two words grants it.
        case permission(any WritableKeyPath<CoreLimits, Bool> & Sendable)
        /// A field of LIMITS, and its default.
        case workers(any WritableKeyPath<WorkerLimits, Int> & Sendable, Int)
        /// An optional field of LIMITS, and its default. Nil if the supervisor or the workers supply it.
        case workersOptional(any WritableKeyPath<WorkerLimits, Int?> & Sendable, Int?)
        /// The supervisor, which has the default.
        case supervisor
        /// Other code that reads the settings, and the default.
        case lookedUp(Int)
    }

    let form: Form
    let use: Use
    /// A noun phrase.
    let help: String

    init(_ form: Form, _ use: Use, help: String) {
        self.form = form
        self.use = use
        self.help = help
    }

    /// Returns the default; nil if the supervisor or the workers supply it.
    func defaultValue(_ limits: CoreLimits) -> Int? {
        switch use {
        case .core(let path), .quota(let path): limits[keyPath: path]
        case .permission(let path): limits[keyPath: path] ? 0 : 1
        case .workers(_, let value), .lookedUp(let value): value
        case .workersOptional(_, let value): value
        case .supervisor: nil
        }
    }
}

extension SettingDefinition.Form {
    /// Possible values as settings store them.
    var range: ClosedRange<Int> {
        switch self {
        case .number(let range), .size(let range), .time(let range): range
        case .word(let words): 0...words.count - 1
        }
    }

    /// Parses a value; nil for an invalid one.
    func value(_ text: String) -> Int? {
        let value: Int? =
            switch self {
            case .number: Decimal.number(text)
            case .size: ByteCount.number(text)
            case .time(let range): Seconds.milliseconds(text, atMost: range.upperBound / 1_000)
            case .word(let words): words.firstIndex(of: text)
            }
        guard let value, range.contains(value) else { return nil }
        return value
    }

    /// Returns a value in normal form.
    func text(_ value: Int) -> String {
        switch self {
        case .number, .size: String(value)
        case .time: Seconds.text(value)
        case .word(let words): words[value]
        }
    }

    /// Description of the possible values for help and error messages.
    var bounds: String {
        switch self {
        case .number(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .size(let range):
            "\(range.lowerBound) to \(range.upperBound), in bytes or with the suffix \(ByteCount.suffixes)"
        case .time(let range):
            "\(text(range.lowerBound)) to \(text(range.upperBound)) seconds, with at most 3 decimals"
        case .word(let words): words.joined(separator: " or ")
        }
    }
}
