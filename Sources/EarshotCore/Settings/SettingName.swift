internal import EarshotHTTP
internal import EarshotWire

/// Settings with one value each, by their names on the command line, in files and on the wire.
///
/// Parser, bounds, default, configuration file, environment variable, command-line option, help, SET, QUERY and the
/// lines between supervisor and broker derive from the table `definition`. Rules for origins and addresses are not in
/// it.
public enum SettingName: String, CaseIterable, Sendable {
    case workers
    case slots
    case workerMemory = "worker-memory"
    case originLimit = "origin-limit"
    case originSpacing = "origin-spacing"
    case limitRate = "limit-rate"
    case http2
    case addressPolicy = "address-policy"
    case requests
    case requestsPerClient = "requests-per-client"
    case requestsPerHandler = "requests-per-handler"
    case requestsPerUser = "requests-per-user"
    case transfersPerUser = "transfers-per-user"
    case spoolPerUser = "spool-per-user"
    case durablePerUser = "durable-per-user"
    case coolDown = "cool-down"
    case inlineBytes = "inline-bytes"
    case requestBodyBytes = "request-body-bytes"
    case spoolSize = "spool-size"
    case spoolFree = "spool-free"
    case maximumDecodingRatio = "max-ratio"
    case pageBytes = "page-bytes"
    case drainSeconds = "drain-seconds"
    case cacheSize = "cache-size"
    case partsSize = "parts-size"
    case partsDays = "parts-days"
    case durableSize = "durable-size"
    case durableTime = "durable-time"
    case cookieTime = "cookie-time"
    case shareBetweenUsers = "share-between-users"
    case admission
    case httpWait = "http-wait"
    case sandbox
    case logLevel = "log-level"
    case accessLog = "access-log"

    /// Keyword before the pattern of a rule for origins.
    public static let originRuleKeyword = "origin"

    /// Keyword before the subject of a rule for addresses.
    public static let addressRuleKeyword = "address"

    /// The table of settings.
    var definition: SettingDefinition {
        switch self {
        case .workers:
            .init(
                .number(1...1_000), .supervisorSetting,
                help: "number of worker processes; one per core by default, at least 2")
        case .slots:
            .init(.number(1...10_000), .optionalWorkerLimit(\.slots, nil), help: "concurrent transfers in each worker")
        case .workerMemory:
            // A worker reserves address space at its start, and would fail with a smaller limit.
            .init(
                .byteCount(256 << 20...1 << 50), .supervisorSetting,
                help: "maximum address space of one worker, in bytes; 4 GiB by default")
        case .originLimit:
            .init(
                .number(1...10_000), .coreLimit(\.originRules.defaultMaximumTransfers),
                help: "concurrent transfers to an origin without a rule")
        case .originSpacing:
            .init(
                .milliseconds(0...WireLimits.durationSeconds * 1_000),
                .coreLimit(\.originRules.defaultSpacingMilliseconds),
                help: "minimum time between two starts at an origin without a rule, in seconds")
        case .limitRate:
            .init(
                .byteCount(0...1 << 50), .coreLimit(\.maximumBytesPerSecond),
                help: "maximum rate of all transfers together, in bytes per second; 0 for no maximum")
        case .http2:
            .init(
                .wordIndex(["auto", "off"]), .corePermission(\.originRules.defaultAllowsHTTP2),
                help: "HTTP/2 over TLS for origins without a rule, where the server offers it")
        case .addressPolicy:
            .init(
                .wordIndex(AddressPreset.allCases.map(\.rawValue)), .readByOtherCode(default: 0),
                help: "addresses that connections may reach without a rule; public-only excludes private networks")
        case .requests:
            .init(
                .number(1...10_000_000), .coreLimit(\.maximumOpenRequests),
                help: "maximum number of open requests of all clients")
        case .requestsPerClient:
            .init(
                .number(1...10_000_000), .coreLimit(\.maximumOpenRequestsPerClient),
                help: "maximum number of open requests of one client")
        case .requestsPerHandler:
            .init(
                .number(1...10_000_000), .coreLimit(\.maximumOpenRequestsPerHandler),
                help: "maximum number of open requests of one handler")
        case .requestsPerUser:
            .init(
                .number(0...10_000_000), .userQuota(\.maximumOpenRequestsPerUser),
                help: "maximum number of open requests of one user; 0 for no maximum")
        case .transfersPerUser:
            .init(
                .number(0...10_000_000), .userQuota(\.maximumTransfersPerUser),
                help: "maximum number of concurrent transfers of one user; 0 for a quarter of all slots")
        case .spoolPerUser:
            .init(
                .byteCount(0...WireLimits.responseBodyBytes), .userQuota(\.maximumSpoolBytesPerUser),
                help: "maximum size of the bodies that one user has not acknowledged, in bytes; 0 for no maximum")
        case .durablePerUser:
            .init(
                .byteCount(0...1 << 50), .userQuota(\.maximumDurableBytesPerUser),
                help: "maximum size of one user's durable requests and results, in bytes; 0 for no maximum")
        case .coolDown:
            .init(
                .milliseconds(0...WireLimits.durationSeconds * 1_000), .coreLimit(\.maximumCoolDownMilliseconds),
                help: "maximum cool-down that a server may request, in seconds")
        case .inlineBytes:
            .init(
                .byteCount(0...16 << 20), .workerLimit(\.maximumInlineBodyBytes, 65_536),
                help: "maximum size of a body in a message, in bytes")
        case .requestBodyBytes:
            .init(
                .byteCount(0...WireLimits.requestBodyBytes), .coreLimit(\.maximumRequestBodyBytes),
                help: "maximum size of the body of a request, in bytes")
        case .spoolSize:
            .init(
                .byteCount(1 << 20...WireLimits.responseBodyBytes), .coreLimit(\.maximumSpoolBytes),
                help: "maximum size of the spool, in bytes")
        case .spoolFree:
            .init(
                .byteCount(0...1 << 50), .workerLimit(\.minimumSpoolFreeBytes, 256 << 20),
                help: "free space that the spool leaves on its disk, in bytes")
        case .maximumDecodingRatio:
            .init(
                .number(0...WireLimits.decodingRatio), .workerLimit(\.maximumDecodingRatio, 200),
                help: "maximum decoded bytes per encoded byte of a body over 16 MiB; 0 for no maximum")
        case .pageBytes:
            .init(
                .byteCount(0...1 << 50), .optionalWorkerLimit(\.maximumErrorPageBytes, 1 << 20),
                help: "maximum size of the body of a redirect or an error page, in bytes")
        case .drainSeconds:
            .init(
                .milliseconds(0...WireLimits.durationSeconds * 1_000), .readByOtherCode(default: 10_000),
                help: "grace period of running transfers after SIGTERM, in seconds")
        case .cacheSize:
            .init(
                .byteCount(0...1 << 50), .readByOtherCode(default: 1 << 30),
                help: "maximum size of the cache, in bytes")
        case .partsSize:
            .init(
                .byteCount(0...1 << 50), .coreLimit(\.maximumKeptPartBytes),
                help: "maximum size of partial bodies that outlive the bus, in bytes; 0 keeps none")
        case .partsDays:
            .init(
                .number(1...3_650), .readByOtherCode(default: 7),
                help: "retention time of an unused partial body that outlives the bus, in days")
        case .durableSize:
            .init(
                .byteCount(0...1 << 50), .readByOtherCode(default: 1 << 30),
                help: "maximum size of durable requests and their results, in bytes; 0 disables durable requests")
        case .durableTime:
            .init(
                .milliseconds(1_000...365 * WireLimits.durationSeconds * 1_000),
                .coreLimit(\.durableRetentionMilliseconds),
                help: "retention time of a durable request, in seconds")
        case .cookieTime:
            .init(
                .milliseconds(0...30 * WireLimits.durationSeconds * 1_000), .coreLimit(\.idleCookieJarMilliseconds),
                help: "retention time of a cookie jar without handlers of its root, in seconds")
        case .shareBetweenUsers:
            .init(
                .wordIndex(["off", "on"]), .readByOtherCode(default: 0),
                help: "fetches and stored responses that users share, if the requests identify no user")
        case .admission:
            .init(
                .wordIndex(["open", "closed"]), .corePermission(\.acceptsNewRequests),
                help: "whether new requests are accepted; `earshot drain` closes it")
        case .httpWait:
            .init(
                .milliseconds(0...WireLimits.durationSeconds * 1_000), .readByOtherCode(default: 10_000),
                help: "maximum wait of a request of the HTTP door for a cool-down of the server, in seconds")
        case .sandbox:
            .init(
                .wordIndex(["on", "off"]), .workerLimit(\.sandboxSetting, 0),
                help: "restriction of workers that start later to the files that they need")
        case .logLevel:
            .init(
                .wordIndex(LogSeverity.allCases.map(\.rawValue)),
                .optionalWorkerLimit(\.logLevel, LogSeverity.notice.index),
                help: "minimum severity of log messages")
        case .accessLog:
            .init(
                .wordIndex(["off", "on"]), .readByOtherCode(default: 0),
                help: "log line for each result and failure")
        }
    }

    /// Whether the supervisor applies the setting. A broker without one rejects it.
    public var isAppliedBySupervisor: Bool {
        if case .supervisorSetting = definition.settingTarget { true } else { false }
    }

    /// Possible values of a setting that takes a word; empty if it takes a number.
    public var possibleWords: [String] {
        if case .wordIndex(let words) = definition.valueForm { words } else { [] }
    }

    /// Whether the value is a word instead of a number.
    public var takesWord: Bool { !possibleWords.isEmpty }

    /// Possible values as settings store them: numbers, milliseconds, or indices of words.
    public var storedValueRange: ClosedRange<Int> { definition.valueForm.storedValueRange }

    /// A noun phrase for help texts.
    public var helpPhrase: String { definition.helpPhrase }

    /// Parses a value from a file, an argument or a SET.
    public func parseValue(_ text: String) throws(SettingError) -> Int {
        guard let value = definition.valueForm.parseValue(text) else {
            throw SettingError("\(rawValue) must be \(possibleValuesDescription)")
        }
        return value
    }

    /// Returns a value in normal form.
    public func valueText(_ value: Int) -> String { definition.valueForm.valueText(value) }

    /// Description of the possible values for help and error messages.
    public var possibleValuesDescription: String { definition.valueForm.possibleValuesDescription }

    /// Placeholder for a value in help texts.
    public var valuePlaceholder: String {
        switch definition.valueForm {
        case .number: "n"
        case .byteCount: "size"
        case .milliseconds: "seconds"
        case .wordIndex: "word"
        }
    }

    // MARK: Unknown names

    /// Returns the error for an unknown name, with the most similar name or else a list of all.
    static func unknownNameError(_ name: String) -> SettingError {
        let keywords = [originRuleKeyword, addressRuleKeyword]
        let all = allCases.map(\.rawValue) + ListSettingName.allCases.map(\.rawValue) + keywords
        if let nearest = mostSimilarName(to: name, among: all) {
            return SettingError("unknown setting; did you mean \(nearest)?")
        }
        return SettingError("unknown setting; use \(all.joined(separator: ", "))")
    }

    /// Returns the element of `names` that is most similar to `name`; nil if none is. O(names · length²); O(1) for a
    /// name that is longer than any setting's.
    public static func mostSimilarName(to name: String, among names: [String]) -> String? {
        guard name.utf8.count <= 40 else { return nil }
        let distances = names.map { (name: $0, distance: editDistance(Array($0.utf8), Array(name.utf8))) }
        guard let nearest = distances.min(by: { $0.distance < $1.distance }) else { return nil }
        return nearest.distance <= max(2, nearest.name.utf8.count / 3) ? nearest.name : nil
    }

    /// Levenshtein distance: the number of bytes to insert, delete or replace.
    private static func editDistance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var row = Array(0...right.count)
        for (index, byte) in left.enumerated() {
            var diagonal = row[0]
            row[0] = index + 1
            for (column, other) in right.enumerated() {
                let changed = diagonal + (byte == other ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(changed, row[column] + 1, diagonal + 1)
            }
        }
        return row[right.count]
    }
}
