internal import EarshotWire

/// A setting that is one number, by its name on the command line, in files and on the wire. All of them are here.
public enum SettingName: String, CaseIterable, Sendable {
    case workers
    case slots
    case workerMemory = "worker-memory"
    case originLimit = "origin-limit"
    case originSpacing = "origin-spacing"
    case requests
    case requestsPerClient = "requests-per-client"
    case requestsPerHandler = "requests-per-handler"
    case coolDown = "cool-down"
    case inlineBytes = "inline-bytes"
    case requestBodyBytes = "request-body-bytes"
    case spoolSize = "spool-size"
    case spoolFree = "spool-free"
    case maxRatio = "max-ratio"
    case pageBytes = "page-bytes"
    case drainSeconds = "drain-seconds"
    case cacheSize = "cache-size"
    case durableSize = "durable-size"
    case durableTime = "durable-time"
    case cookieTime = "cookie-time"

    /// The word before a pattern, in a rule for some origins.
    public static let rule = "origin"

    /// The word for a preset of the address policy, and the one before a network or host that has a rule of its own.
    public static let addressPolicy = "address-policy"
    /// See `addressPolicy`.
    public static let address = "address"

    /// The word for whether HTTP/2 may be spoken, in a rule too.
    public static let http2 = "http2"

    /// Whether it is a time: said in seconds, kept in milliseconds.
    public var isTime: Bool {
        switch self {
        case .originSpacing, .coolDown, .drainSeconds, .durableTime, .cookieTime: true
        case .workers, .slots, .workerMemory, .originLimit, .requests, .requestsPerClient, .requestsPerHandler,
            .inlineBytes, .requestBodyBytes, .spoolSize, .spoolFree, .maxRatio, .pageBytes, .cacheSize, .durableSize:
            false
        }
    }

    /// Whether it is put to work by the supervisor: without one it means nothing.
    public var isOfSupervisor: Bool {
        switch self {
        case .workers, .workerMemory: true
        case .slots, .originLimit, .originSpacing, .requests, .requestsPerClient, .requestsPerHandler, .coolDown,
            .inlineBytes, .requestBodyBytes, .spoolSize, .spoolFree, .maxRatio, .pageBytes, .drainSeconds, .cacheSize,
            .durableSize, .durableTime, .cookieTime:
            false
        }
    }

    /// What it may be; of a time in milliseconds.
    public var range: ClosedRange<Int> {
        switch self {
        case .workers: 1...1_000
        case .slots, .originLimit: 1...10_000
        // Less than a worker reserves at its start ends it at once.
        case .workerMemory: 256 << 20...1 << 50
        case .originSpacing, .coolDown, .drainSeconds: 0...WireLimits.seconds * 1_000
        case .requests, .requestsPerClient, .requestsPerHandler: 1...10_000_000
        case .inlineBytes: 0...16 << 20
        case .requestBodyBytes: 0...WireLimits.requestBodyBytes
        case .cacheSize, .durableSize: 0...1 << 50
        case .cookieTime: 0...30 * WireLimits.seconds * 1_000
        case .durableTime: 1_000...365 * WireLimits.seconds * 1_000
        case .spoolSize: 1 << 20...1 << 50
        case .spoolFree, .pageBytes: 0...1 << 50
        case .maxRatio: 0...WireLimits.ratio
        }
    }

    /// What it is, in a few words.
    public var meaning: String {
        switch self {
        case .workers: "worker processes"
        case .slots: "transfers at once in one worker"
        case .workerMemory: "bytes of address space that one worker may have"
        case .originLimit: "transfers at once to an origin without a rule"
        case .originSpacing: "seconds between two starts at an origin without a rule"
        case .requests: "requests that have not ended, of all clients"
        case .requestsPerClient: "requests that have not ended, of one client"
        case .requestsPerHandler: "requests that have not ended, of one handler"
        case .coolDown: "the longest that a server may ask to be left alone, in seconds"
        case .inlineBytes: "bodies up to so many bytes travel in messages"
        case .requestBodyBytes: "bytes of the body of a request"
        case .cacheSize: "bytes that the cache keeps at most"
        case .durableSize: "bytes of durable requests and their results at most; 0 for none"
        case .durableTime: "seconds that a durable request is kept"
        case .cookieTime: "seconds that cookies are kept without a handler of their root"
        case .spoolSize: "bytes of bodies that may be in the spool"
        case .spoolFree: "bytes that the spool leaves free on its disk"
        case .maxRatio: "maximum decoded bytes per encoded byte of a body over 16 MiB; 0 for none"
        case .pageBytes: "maximum bytes of the body of a redirect or an error page"
        case .drainSeconds: "seconds that running work has when its process shall end"
        }
    }

    /// The value that `text` says.
    public func value(_ text: String) throws(SettingError) -> Int {
        let isNumber = text.utf8.allSatisfy { (0x30...0x39).contains($0) }
        guard
            let value = isTime
                ? Seconds.milliseconds(text, atMost: range.upperBound / 1_000) : isNumber ? Int(text) : nil,
            range.contains(value)
        else {
            throw SettingError("\(rawValue) is \(bounds)")
        }
        return value
    }

    /// A value in normal form.
    public func text(_ value: Int) -> String { isTime ? Seconds.text(value) : String(value) }

    /// What it may be, for people.
    public var bounds: String {
        let form = isTime ? " seconds, with at most three digits after the point" : ""
        return "\(text(range.lowerBound)) to \(text(range.upperBound))" + form
    }

    // MARK: Unknown names

    /// What to say of a name that is none: what it may have been meant to be, or else all that there is.
    static func unknown(_ name: String) -> SettingError {
        let all = allCases.map(\.rawValue) + [rule, http2, addressPolicy, address]
        if let nearest = nearest(to: name, among: all) {
            return SettingError("there is no such setting: is \(nearest) meant?")
        }
        return SettingError("there is no such setting: there are \(all.joined(separator: ", "))")
    }

    /// The one of `names` that a slip of the fingers makes `name`; nil if none is near. O(names · length²), of names
    /// that are too long to be one O(1).
    public static func nearest(to name: String, among names: [String]) -> String? {
        guard name.utf8.count <= 40 else { return nil }
        let distances = names.map { (name: $0, distance: distance(Array($0.utf8), Array(name.utf8))) }
        guard let nearest = distances.min(by: { $0.distance < $1.distance }) else { return nil }
        return nearest.distance <= max(2, nearest.name.utf8.count / 3) ? nearest.name : nil
    }

    /// Bytes to add, drop or change, by Levenshtein.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
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
