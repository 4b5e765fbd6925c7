internal import EarshotHTTP
internal import EarshotWire

/// Settings with one value each, by their names on the command line, in files and on the wire.
///
/// Parser, bounds, default, configuration file, environment variable, command-line option, help, SET, QUERY and the lines
/// between supervisor and broker derive from the table `definition`. Rules for origins and addresses are not in it.
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
    case maxRatio = "max-ratio"
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
    public static let rule = "origin"

    /// Keyword before the subject of a rule for addresses.
    public static let address = "address"

    /// The table of settings.
    var definition: SettingDefinition {
        switch self {
        case .workers:
            .init(
                .number(1...1_000), .supervisor, help: "number of worker processes; one per core by default, at least 2"
            )
        case .slots:
            .init(.number(1...10_000), .workersOptional(\.slots, nil), help: "concurrent transfers in each worker")
        case .workerMemory:
            // A worker reserves address space at its start, and would fail with a smaller limit.
            .init(
                .size(256 << 20...1 << 50), .supervisor,
                help: "maximum address space of one worker, in bytes; 4 GiB by default")
        case .originLimit:
            .init(
                .number(1...10_000), .core(\.origins.limit), help: "concurrent transfers to an origin without a rule")
        case .originSpacing:
            .init(
                .time(0...WireLimits.seconds * 1_000), .core(\.origins.spacingMilliseconds),
                help: "minimum time between two starts at an origin without a rule, in seconds")
        case .limitRate:
            .init(
                .size(0...1 << 50), .core(\.rate),
                help: "maximum rate of all transfers together, in bytes per second; 0 for no maximum")
        case .http2:
            .init(
                .word(["auto", "off"]), .permission(\.origins.allowsHTTP2),
                help: "HTTP/2 over TLS for origins without a rule, where the server offers it")
        case .addressPolicy:
            .init(
                .word(AddressPreset.allCases.map(\.rawValue)), .lookedUp(0),
                help: "addresses that connections may reach without a rule; public-only excludes private networks")
        case .requests:
            .init(.number(1...10_000_000), .core(\.requests), help: "maximum number of open requests of all clients")
        case .requestsPerClient:
            .init(
                .number(1...10_000_000), .core(\.requestsPerClient),
                help: "maximum number of open requests of one client")
        case .requestsPerHandler:
            .init(
                .number(1...10_000_000), .core(\.requestsPerHandler),
                help: "maximum number of open requests of one handler")
        case .requestsPerUser:
            .init(
                .number(0...10_000_000), .quota(\.requestsPerUser),
                help: "maximum number of open requests of one user; 0 for no maximum")
        case .transfersPerUser:
            .init(
                .number(0...10_000_000), .quota(\.transfersPerUser),
                help: "maximum number of concurrent transfers of one user; 0 for a quarter of all slots")
        case .spoolPerUser:
            .init(
                .size(0...WireLimits.bodyBytes), .quota(\.spoolBytesPerUser),
                help: "maximum size of the bodies that one user has not acknowledged, in bytes; 0 for no maximum")
        case .durablePerUser:
            .init(
                .size(0...1 << 50), .quota(\.durableBytesPerUser),
                help: "maximum size of one user's durable requests and results, in bytes; 0 for no maximum")
        case .coolDown:
            .init(
                .time(0...WireLimits.seconds * 1_000), .core(\.coolDownMilliseconds),
                help: "maximum cool-down that a server may request, in seconds")
        case .inlineBytes:
            .init(
                .size(0...16 << 20), .workers(\.inlineBytes, 65_536),
                help: "maximum size of a body in a message, in bytes")
        case .requestBodyBytes:
            .init(
                .size(0...WireLimits.requestBodyBytes), .core(\.requestBodyBytes),
                help: "maximum size of the body of a request, in bytes")
        case .spoolSize:
            .init(
                .size(1 << 20...WireLimits.bodyBytes), .core(\.spoolBytes),
                help: "maximum size of the spool, in bytes")
        case .spoolFree:
            .init(
                .size(0...1 << 50), .workers(\.spoolFreeBytes, 256 << 20),
                help: "free space that the spool leaves on its disk, in bytes")
        case .maxRatio:
            .init(
                .number(0...WireLimits.ratio), .workers(\.maxRatio, 200),
                help: "maximum decoded bytes per encoded byte of a body over 16 MiB; 0 for no maximum")
        case .pageBytes:
            .init(
                .size(0...1 << 50), .workersOptional(\.pageBytes, 1 << 20),
                help: "maximum size of the body of a redirect or an error page, in bytes")
        case .drainSeconds:
            .init(
                .time(0...WireLimits.seconds * 1_000), .lookedUp(10_000),
                help: "grace period of running transfers after SIGTERM, in seconds")
        case .cacheSize:
            .init(.size(0...1 << 50), .lookedUp(1 << 30), help: "maximum size of the cache, in bytes")
        case .partsSize:
            .init(
                .size(0...1 << 50), .core(\.partsBytes),
                help: "maximum size of partial bodies that outlive the bus, in bytes; 0 keeps none")
        case .partsDays:
            .init(
                .number(1...3_650), .lookedUp(7),
                help: "retention time of an unused partial body that outlives the bus, in days")
        case .durableSize:
            .init(
                .size(0...1 << 50), .lookedUp(1 << 30),
                help: "maximum size of durable requests and their results, in bytes; 0 disables durable requests")
        case .durableTime:
            .init(
                .time(1_000...365 * WireLimits.seconds * 1_000), .core(\.durableMilliseconds),
                help: "retention time of a durable request, in seconds")
        case .cookieTime:
            .init(
                .time(0...30 * WireLimits.seconds * 1_000), .core(\.cookieMilliseconds),
                help: "retention time of a cookie jar without handlers of its root, in seconds")
        case .shareBetweenUsers:
            .init(
                .word(["off", "on"]), .lookedUp(0),
                help: "fetches and stored responses that users share, if the requests identify no user")
        case .admission:
            .init(
                .word(["open", "closed"]), .permission(\.isAdmitting),
                help: "whether new requests are accepted; `earshot drain` closes it")
        case .httpWait:
            .init(
                .time(0...WireLimits.seconds * 1_000), .lookedUp(10_000),
                help: "maximum wait of a request of the HTTP door for a cool-down of the server, in seconds")
        case .sandbox:
            .init(
                .word(["on", "off"]), .workers(\.sandbox, 0),
                help: "restriction of workers that start later to the files that they need")
        case .logLevel:
            .init(
                .word(LogSeverity.allCases.map(\.rawValue)),
                .workersOptional(\.logLevel, LogSeverity.notice.index), help: "minimum severity of log messages")
        case .accessLog:
            .init(.word(["off", "on"]), .lookedUp(0), help: "log line for each result and failure")
        }
    }

    /// Whether the supervisor applies the setting. A broker without one rejects it.
    public var isOfSupervisor: Bool {
        if case .supervisor = definition.use { true } else { false }
    }

    /// Possible values of a setting that takes a word; empty if it takes a number.
    public var words: [String] {
        if case .word(let words) = definition.form { words } else { [] }
    }

    /// Whether the value is a word instead of a number.
    public var takesWord: Bool { !words.isEmpty }

    /// Possible values as settings store them: numbers, milliseconds, or indices of words.
    public var range: ClosedRange<Int> { definition.form.range }

    /// A noun phrase for help texts.
    public var help: String { definition.help }

    /// Parses a value from a file, an argument or a SET.
    public func value(_ text: String) throws(SettingError) -> Int {
        guard let value = definition.form.value(text) else { throw SettingError("\(rawValue) must be \(bounds)") }
        return value
    }

    /// Returns a value in normal form.
    public func text(_ value: Int) -> String { definition.form.text(value) }

    /// Description of the possible values for help and error messages.
    public var bounds: String { definition.form.bounds }

    /// Placeholder for a value in help texts.
    public var placeholder: String {
        switch definition.form {
        case .number: "n"
        case .size: "size"
        case .time: "seconds"
        case .word: "word"
        }
    }

    // MARK: Unknown names

    /// Returns the error for an unknown name, with the most similar name or else a list of all.
    static func unknown(_ name: String) -> SettingError {
        let all = allCases.map(\.rawValue) + ListSettingName.allCases.map(\.rawValue) + [rule, address]
        if let nearest = nearest(to: name, among: all) {
            return SettingError("unknown setting; did you mean \(nearest)?")
        }
        return SettingError("unknown setting; use \(all.joined(separator: ", "))")
    }

    /// Returns the element of `names` that is most similar to `name`; nil if none is. O(names · length²); O(1) for a name
    /// that is longer than any setting's.
    public static func nearest(to name: String, among names: [String]) -> String? {
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
