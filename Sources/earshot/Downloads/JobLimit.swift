internal import EarshotClient
internal import EarshotWire

/// Limit of `-j` for the pending requests to one origin, beside the bus's own limit of transfers.
struct JobLimit {
    /// What follows from the settings of the bus.
    enum Step: Equatable {
        /// The limit of the private bus is raised.
        case raise(SettingWords)
        /// The limit of a bus that other programs share is lower.
        case warning(String)
    }

    /// Maximum number of pending requests to one origin.
    let jobs: Int
    /// Whether the bus is for this run only.
    let isBusPrivate: Bool

    /// Compares the limit with the answer to `QUERY settings`. Returns nil if the bus admits as many transfers.
    func step(after settings: [UInt8]) -> Step? {
        guard let limit = JSONValue(settings)?.originLimit, limit <= jobs else { return nil }
        // One place of an origin is reserved for class high.
        if isBusPrivate, let setting = SettingWords(["origin-limit", "\(jobs + 1)"]) { return .raise(setting) }
        guard limit < jobs else { return nil }
        return .warning(
            "-j \(jobs): the bus has at most \(limit) transfers to one origin at a time; raise that with "
                + "`earshot set origin-limit \(jobs)`")
    }
}
