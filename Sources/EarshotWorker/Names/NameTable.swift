internal import DequeModule
internal import EarshotHTTP
internal import EarshotLoop

/// Bounded cache of name lookups, and the waiters of running ones. Pure: performs no I/O.
///
/// A lookup continues without waiters, because c-ares cannot cancel a single one. So jobs that come and go could start
/// any number. While `maximumAbandonedLookups` lookups have no waiter, the last waiter of another one stays until the
/// answer.
struct NameTable<Waiter: Hashable> {
    /// The next step for a waiter.
    enum Decision: Equatable {
        /// The answer is cached.
        case cachedAnswer(NameAnswer)
        /// The caller must start a lookup. The waiter is the first for this name.
        case startLookup
        /// A lookup is running, and the waiter has been added to it.
        case waitForLookup
    }

    private struct Entry {
        let answer: NameAnswer
        let expiryTime: LoopTime
    }

    private let maximumAnswers: Int
    private let maximumAbandonedLookups: Int
    private var answersByName: [String: Entry] = [:]
    /// Names of `answersByName` in the order of their first answer. An updated answer does not move its name.
    private var answerOrder: Deque<String> = []
    /// Waiters by the name of a running lookup. Each job waits for one at most, so the slots bound those with waiters.
    private var waiters: [String: Set<Waiter>] = [:]
    /// Number of running lookups without waiters.
    private var abandonedLookupCount = 0

    /// - Parameters:
    ///   - maximumAnswers: Maximum number of cached answers. Beyond it the oldest are evicted.
    ///   - maximumAbandonedLookups: Maximum number of running lookups without waiters.
    init(
        maximumAnswers: Int = Limits.maximumCachedNames, maximumAbandonedLookups: Int = Limits.maximumAbandonedLookups
    ) {
        self.maximumAnswers = maximumAnswers
        self.maximumAbandonedLookups = maximumAbandonedLookups
    }

    /// Number of cached answers.
    var count: Int { answersByName.count }

    /// Returns the cached answer for `name`, or registers `waiter` for it.
    mutating func requestLookup(_ name: String, by waiter: Waiter, now: LoopTime) -> Decision {
        if let entry = answersByName[name], entry.expiryTime > now { return .cachedAnswer(entry.answer) }
        let running = waiters[name]
        if running?.isEmpty == true { abandonedLookupCount -= 1 }
        waiters[name, default: []].insert(waiter)
        return running == nil ? .startLookup : .waitForLookup
    }

    /// Caches the answer of the lookup of `name`.
    ///
    /// - Returns: The waiters of the lookup.
    mutating func recordAnswer(for name: String, answer: NameAnswer, lifetime: Duration, now: LoopTime) -> Set<Waiter> {
        let expires = now.advanced(by: lifetime)
        if answersByName.updateValue(Entry(answer: answer, expiryTime: expires), forKey: name) == nil {
            answerOrder.append(name)
        }
        while answersByName.count > maximumAnswers, let oldest = answerOrder.popFirst() { answersByName[oldest] = nil }
        guard let waiting = waiters.removeValue(forKey: name) else { return [] }
        if waiting.isEmpty { abandonedLookupCount -= 1 }
        return waiting
    }

    /// Returns whether `waiter` may leave the lookup of `name`. The last one may not while too many have no waiter.
    func mayWithdrawWaiter(_ name: String, by waiter: Waiter) -> Bool {
        abandonedLookupCount < maximumAbandonedLookups || waiters[name] != [waiter]
    }

    /// Removes `waiter` from the lookup of `name`. The lookup continues, and its answer is cached.
    mutating func removeWaiter(_ name: String, by waiter: Waiter) {
        guard waiters[name]?.remove(waiter) != nil else { return }
        // The empty set stays and marks the running lookup.
        if waiters[name]?.isEmpty == true { abandonedLookupCount += 1 }
    }
}

/// Result of the lookup of a host name.
enum NameAnswer: Equatable {
    /// Numeric addresses, at least one. IPv6 addresses have no brackets.
    case addresses([String])
    /// The name does not exist.
    case nameNotFound
    /// No name server answered.
    case lookupFailed

    /// Returns the answer for a name that needs no lookup; nil for any other name. Such names are `localhost`,
    /// `invalid` and names below them: RFC 6761, sections 6.3 and 6.4.
    ///
    /// - Parameter name: Lower-case name.
    static func specialUseAnswer(forName name: String) -> NameAnswer? {
        let labels = name.split(separator: ".", omittingEmptySubsequences: true)
        switch labels.last {
        case "localhost": return .addresses(["127.0.0.1", "::1"])
        case "invalid": return .nameNotFound
        default: return nil
        }
    }

    /// Returns the addresses of a host and port in the form of CURLOPT_RESOLVE.
    ///
    /// For a name with a trailing dot the list contains both spellings, because libcurl looks it up without the dot.
    static func resolveEntries(host: String, port: UInt16, _ addresses: [String]) -> [String] {
        let list = addresses.map { $0.utf8.contains(UInt8(ascii: ":")) ? "[\($0)]" : $0 }.joined(separator: ",")
        let names = host.utf8.last == UInt8(ascii: ".") ? [host, String(host.dropLast())] : [host]
        return names.map { "\($0):\(port):\(list)" }
    }
}

/// Addresses of names in a hosts file: hosts(5).
///
/// c-ares reads `/etc/hosts` itself. A sandbox permits it to open only the file that was there when the sandbox took
/// effect, so the broker sends the content of a later one.
struct HostsFile {
    /// Path of the system's file.
    static let path = "/etc/hosts"

    /// Addresses by lower-case name, in the order of the file.
    private var addresses: [String: [String]] = [:]

    init(_ bytes: [UInt8]) {
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            let words = line.prefix { $0 != UInt8(ascii: "#") }
                .split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\r") }
                .map { String(decoding: $0, as: UTF8.self) }
            guard let address = words.first, IPAddress(address) != nil else { continue }
            for name in words.dropFirst() { addresses[name.lowercased(), default: []].append(address) }
        }
    }

    /// Returns the addresses of a name; nil if the file lacks it.
    ///
    /// - Parameter name: Lower-case name.
    func addresses(of name: String) -> [String]? { addresses[name] }
}
