internal import EarshotHTTP

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
        /// A `SettingName`, or `origin`, `address-policy` or `address`.
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
    private var http2 = Sourced(value: true, source: Source.standard)
    private var addressPreset = Sourced(value: AddressPreset.all, source: Source.standard)
    /// Whether it is allowed to connect to these.
    private var addresses: [AddressRule.Subject: Sourced<Bool>] = [:]

    /// What `limits` say and, of what they do not tell, what holds when nobody says anything. There is no number of
    /// workers, none of slots and no bound for a worker's memory: who has a pool gives them.
    public init(_ limits: CoreLimits = CoreLimits()) {
        put(.originLimit, limits.origins.limit)
        put(.originSpacing, limits.origins.spacingMilliseconds)
        put(.requests, limits.requests)
        put(.requestsPerClient, limits.requestsPerClient)
        put(.requestsPerHandler, limits.requestsPerHandler)
        put(.coolDown, limits.coolDownMilliseconds)
        put(.inlineBytes, 65_536)
        put(.requestBodyBytes, limits.requestBodyBytes)
        put(.spoolSize, limits.spoolBytes)
        put(.spoolFree, 256 << 20)
        put(.maxRatio, 200)
        put(.pageBytes, 1 << 20)
        put(.drainSeconds, 10_000)
        put(.cacheSize, 1 << 30)
        put(.durableSize, 1 << 30)
        put(.durableTime, limits.durableMilliseconds)
        put(.cookieTime, limits.cookieMilliseconds)
        http2.value = limits.origins.allowsHTTP2
        rules = limits.origins.rules.mapValues { Sourced(value: $0, source: Source.standard) }
    }

    private mutating func put(_ name: SettingName, _ value: Int) {
        numbers[name] = Sourced(value: value, source: Source.standard)
    }

    /// A number; of a time in milliseconds. Nil for what belongs to a pool and nobody gave.
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
        case .http2(let isAllowed): http2 = Sourced(value: isAllowed, source: source)
        case .addressPolicy(let preset): addressPreset = Sourced(value: preset, source: source)
        case .address(let subject, let isAllowing):
            guard addresses[subject] != nil || addresses.count < Self.mostAddressRules else {
                throw SettingError("there are at most \(Self.mostAddressRules) rules for addresses")
            }
            addresses[subject] = Sourced(value: isAllowing, source: source)
        case .noAddress(let subject): addresses[subject] = nil
        }
    }

    /// The limits with what is set put in.
    func applied(to limits: CoreLimits) -> CoreLimits {
        var limits = limits
        limits.requests = self[.requests] ?? limits.requests
        limits.requestsPerClient = self[.requestsPerClient] ?? limits.requestsPerClient
        limits.requestsPerHandler = self[.requestsPerHandler] ?? limits.requestsPerHandler
        limits.coolDownMilliseconds = self[.coolDown] ?? limits.coolDownMilliseconds
        limits.spoolBytes = self[.spoolSize] ?? limits.spoolBytes
        limits.requestBodyBytes = self[.requestBodyBytes] ?? limits.requestBodyBytes
        limits.durableMilliseconds = self[.durableTime] ?? limits.durableMilliseconds
        limits.cookieMilliseconds = self[.cookieTime] ?? limits.cookieMilliseconds
        limits.origins.limit = self[.originLimit] ?? limits.origins.limit
        limits.origins.spacingMilliseconds = self[.originSpacing] ?? limits.origins.spacingMilliseconds
        limits.origins.allowsHTTP2 = http2.value
        limits.origins.rules = rules.mapValues(\.value)
        return limits
    }

    /// Where connections may go, as LIMITS says it; empty for everywhere.
    var addressPolicy: String {
        let preset = addressPreset.value == .all ? [] : [addressPreset.value.rawValue]
        let rules = sortedAddresses.map { AddressRule($0, isAllowing: $1.value).description }
        return (preset + rules).joined(separator: ", ")
    }

    /// All of them: the numbers in the order of their table, then the rules by their patterns, then those for
    /// addresses.
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
            } + addressRows
    }

    private var addressRows: [Row] {
        [
            Row(
                name: SettingName.http2, pattern: nil, value: SettingChange.http2Word(http2.value), source: http2.source
            ),
            Row(
                name: SettingName.addressPolicy, pattern: nil, value: addressPreset.value.rawValue,
                source: addressPreset.source),
        ]
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

    /// What a supervisor tells its broker: a line for each, its source, a tab and its words.
    public var lines: [String] {
        let all =
            SettingName.allCases.compactMap { name in
                numbers[name].map { (SettingChange.number(name, $0.value), $0.source) }
            } + sortedRules.map { (SettingChange.rule($0, $1.value), $1.source) }
            + [
                (SettingChange.http2(http2.value), http2.source),
                (SettingChange.addressPolicy(addressPreset.value), addressPreset.source),
            ]
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
