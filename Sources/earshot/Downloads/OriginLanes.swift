internal import EarshotClient
internal import EarshotHTTP

/// Limit of the pending requests to each origin.
///
/// An item whose origin is full waits. `ended` frees a place, and `next` returns the item that takes it. The caller adds
/// items only while `hasRoom`, so that an endless list does not fill the memory.
struct OriginLanes<Item> {
    /// Maximum number of waiting items. Items of other origins behind them must wait as well.
    static var mostWaiting: Int { 100_000 }

    private struct Lane {
        var pendingCount = 0
        /// Waiting items; those before `firstIndex` are gone.
        var waiting: [Item] = []
        var firstIndex = 0
    }

    private let limit: Int
    private var lanes: [String: Lane] = [:]
    /// Origins with a free place and a waiting item, once for each place.
    private var readyOrigins: [String] = []
    private var waitingCount = 0

    /// - Parameter limit: maximum number of pending items of one origin, at least 1.
    init(limit: Int) {
        self.limit = limit
    }

    /// Whether another item may be added.
    var hasRoom: Bool { waitingCount < Self.mostWaiting }
    var isEmpty: Bool { waitingCount == 0 }

    /// Waiting items, in the order in which they were added to their origins. O(items · log items).
    var waitingItems: [Item] {
        lanes.sorted { $0.key < $1.key }.flatMap { $0.value.waiting[$0.value.firstIndex...] }
    }

    /// Adds an item. Returns whether it may start now; otherwise it waits.
    mutating func admits(_ item: Item, of url: String) -> Bool {
        let origin = Self.origin(of: url)
        guard lanes[origin, default: Lane()].pendingCount >= limit else {
            lanes[origin, default: Lane()].pendingCount += 1
            return true
        }
        lanes[origin]?.waiting.append(item)
        waitingCount += 1
        return false
    }

    /// Frees the place of an item that `admits` or `next` has started.
    mutating func ended(_ url: String) {
        let origin = Self.origin(of: url)
        guard var lane = lanes.removeValue(forKey: origin) else { return }
        lane.pendingCount -= 1
        if lane.firstIndex < lane.waiting.count { readyOrigins.append(origin) }
        if lane.pendingCount > 0 || lane.firstIndex < lane.waiting.count { lanes[origin] = lane }
    }

    /// Takes a waiting item that may start now.
    mutating func next() -> Item? {
        while let origin = readyOrigins.popLast() {
            guard var lane = lanes.removeValue(forKey: origin) else { continue }
            defer { if lane.pendingCount > 0 || lane.firstIndex < lane.waiting.count { lanes[origin] = lane } }
            guard lane.pendingCount < limit, lane.firstIndex < lane.waiting.count else { continue }
            let item = lane.waiting[lane.firstIndex]
            lane.firstIndex += 1
            lane.pendingCount += 1
            waitingCount -= 1
            // Amortized: the items move once for as many that have left.
            if lane.firstIndex * 2 > lane.waiting.count {
                lane.waiting.removeFirst(lane.firstIndex)
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
        let rows = items("settings")
        let row = rows.first { $0.member("name")?.text == "origin-limit" && $0.member("pattern")?.text ?? "" == "" }
        return row?.number("value")
    }
}
