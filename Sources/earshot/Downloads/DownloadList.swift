/// URLs of a run of `earshot get`, as items in their order. Standard input may bring further URLs during the run.
struct DownloadList {
    /// Known URLs. Those before `nextIndex` are taken.
    private var entries: [ListEntry]
    private var nextIndex = 0
    /// Number of taken URLs that are no longer in `entries`.
    private var removedEntryCount = 0
    /// Items that wait for the end of another one of their origin; nil without a limit for each origin.
    private var originLanes: OriginLanes<OutputItem>?
    /// Whether URLs come from standard input.
    let readsInput: Bool
    /// Whether further URLs may arrive.
    private(set) var isOpen: Bool

    /// - Parameters:
    ///   - readsInput: whether further URLs come from standard input.
    ///   - jobs: maximum number of pending items of one origin; nil for no limit.
    init(_ entries: [ListEntry], readsInput: Bool, jobs: Int?) {
        self.entries = entries
        self.readsInput = readsInput
        isOpen = readsInput
        originLanes = jobs.map { OriginLanes(limit: $0) }
    }

    /// Number of URLs so far.
    var count: Int { removedEntryCount + entries.count }

    /// Whether all items were taken, and none will follow.
    var isExhausted: Bool { !isOpen && nextIndex == entries.count && originLanes?.isEmpty ?? true }

    mutating func add(_ more: [ListEntry]) { entries += more }

    /// No further URL will arrive.
    mutating func close() { isOpen = false }

    /// Takes the next item that may start; nil without one.
    ///
    /// - Parameter name: returns the path of an item's file if that is needed before its request. It is called in the
    ///   order of the URLs.
    mutating func takeNext(name: (OutputItem) -> String?) -> OutputItem? {
        if let item = originLanes?.takeNext() { return item }
        while nextIndex < entries.count, originLanes?.hasRoom ?? true {
            let item = takeEntry(name: name)
            if originLanes?.startOrEnqueue(item, of: item.entry.url) ?? true { return item }
        }
        return nil
    }

    /// Frees the place of an item that has ended.
    mutating func itemEnded(_ item: OutputItem) { originLanes?.releasePlace(of: item.entry.url) }

    /// Takes all items that have not started: those that wait for their origin first.
    mutating func takeAllUnstarted(name: (OutputItem) -> String?) -> [OutputItem] {
        var rest = originLanes?.waitingItems ?? []
        originLanes = nil
        while nextIndex < entries.count { rest.append(takeEntry(name: name)) }
        return rest
    }

    /// Whether all known URLs were taken. Forgets them then.
    mutating func needsMore() -> Bool {
        guard nextIndex == entries.count else { return false }
        removedEntryCount += nextIndex
        nextIndex = 0
        entries.removeAll(keepingCapacity: true)
        return true
    }

    private mutating func takeEntry(name: (OutputItem) -> String?) -> OutputItem {
        var item = OutputItem(entry: entries[nextIndex], index: removedEntryCount + nextIndex + 1)
        nextIndex += 1
        item.name = name(item)
        return item
    }
}

/// Item of a list whose body is written.
struct OutputItem {
    var entry: ListEntry
    /// Index in the list, from 1.
    var index: Int
    /// Reserved path below the output directory; nil if the response or its arrival determines it.
    var name: String?
    /// File that the body continues; nil for a complete body.
    var partial: ExistingFile?
}
