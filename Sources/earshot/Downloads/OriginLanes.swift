internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire

/// Limit of the pending requests to each origin.
///
/// An item whose origin is full waits. `releasePlace` frees a place, and `takeNext` returns the item that takes it. The
/// caller adds items only while `hasRoom` is true, so that an endless list does not fill the memory.
struct OriginLanes<Item> {
    /// Maximum number of waiting items. Items of other origins behind them must wait as well.
    static var maximumWaitingItems: Int { 100_000 }

    private struct Lane {
        var pendingCount = 0
        /// Waiting items; those before `firstIndex` are gone.
        var waitingItems: [Item] = []
        var firstIndex = 0
    }

    private let pendingLimit: Int
    private var lanes: [String: Lane] = [:]
    /// Origins with a free place and a waiting item, once for each place.
    private var readyOrigins: [String] = []
    private var waitingCount = 0

    /// - Parameter limit: maximum number of pending items of one origin, at least 1.
    init(limit: Int) {
        self.pendingLimit = limit
    }

    /// Whether another item may be added.
    var hasRoom: Bool { waitingCount < Self.maximumWaitingItems }
    var isEmpty: Bool { waitingCount == 0 }

    /// Waiting items, in the order in which they were added to their origins. O(items · log items).
    var waitingItems: [Item] {
        lanes.sorted { $0.key < $1.key }.flatMap { $0.value.waitingItems[$0.value.firstIndex...] }
    }

    /// Adds an item. Returns whether it may start now; otherwise it waits.
    mutating func startOrEnqueue(_ item: Item, of url: String) -> Bool {
        let origin = Self.origin(of: url)
        guard lanes[origin, default: Lane()].pendingCount >= pendingLimit else {
            lanes[origin, default: Lane()].pendingCount += 1
            return true
        }
        lanes[origin]?.waitingItems.append(item)
        waitingCount += 1
        return false
    }

    /// Frees the place of an item that `startOrEnqueue` or `takeNext` has started.
    mutating func releasePlace(of url: String) {
        let origin = Self.origin(of: url)
        guard var lane = lanes.removeValue(forKey: origin) else { return }
        lane.pendingCount -= 1
        if lane.firstIndex < lane.waitingItems.count { readyOrigins.append(origin) }
        if lane.pendingCount > 0 || lane.firstIndex < lane.waitingItems.count { lanes[origin] = lane }
    }

    /// Takes a waiting item that may start now.
    mutating func takeNext() -> Item? {
        while let origin = readyOrigins.popLast() {
            guard var lane = lanes.removeValue(forKey: origin) else { continue }
            defer { if lane.pendingCount > 0 || lane.firstIndex < lane.waitingItems.count { lanes[origin] = lane } }
            guard lane.pendingCount < pendingLimit, lane.firstIndex < lane.waitingItems.count else { continue }
            let item = lane.waitingItems[lane.firstIndex]
            lane.firstIndex += 1
            lane.pendingCount += 1
            waitingCount -= 1
            // Amortized: the items move once for as many that have left.
            if lane.firstIndex * 2 > lane.waitingItems.count {
                lane.waitingItems.removeFirst(lane.firstIndex)
                lane.firstIndex = 0
            }
            return item
        }
        return nil
    }

    /// Returns the origin of a URL. Malformed URLs, which are not sent, share one.
    private static func origin(of url: String) -> String {
        guard let url = try? FetchURL(url) else { return "" }
        return "\(url.scheme)://\(url.host):\(url.port ?? 0)"
    }
}

extension JSONValue {
    /// Limit of origins without a rule, in the answer to `QUERY settings`.
    var originLimit: Int? {
        let rows = items(ofMember: "settings")
        let row = rows.first {
            $0.member("name")?.scalarText == "origin-limit" && $0.member("pattern")?.scalarText ?? "" == ""
        }
        return row?.integer(ofMember: "value")
    }
}

/// Limit of `-j` for the pending requests to one origin, beside the bus's own limit of transfers.
struct JobLimit {
    /// Consequence of the settings of the bus.
    enum Adjustment: Equatable {
        /// The limit of the private bus is raised.
        case raiseOriginLimit(SettingWords)
        /// The limit of a bus that other programs share is lower.
        case warning(String)
    }

    /// Maximum number of pending requests to one origin.
    let jobs: Int
    /// Whether the bus is for this run only.
    let isBusPrivate: Bool

    /// Compares the limit with the answer to `QUERY settings`. Returns nil if the bus admits as many transfers.
    func adjustment(for settings: [UInt8]) -> Adjustment? {
        guard let limit = JSONValue(settings)?.originLimit, limit <= jobs else { return nil }
        // One place of an origin is reserved for class high.
        if isBusPrivate, let setting = SettingWords(["origin-limit", "\(jobs + 1)"]) {
            return .raiseOriginLimit(setting)
        }
        guard limit < jobs else { return nil }
        return .warning(
            "-j \(jobs): the bus has at most \(limit) transfers to one origin at a time; raise that with "
                + "`earshot set origin-limit \(jobs)`")
    }
}
