/// Entries of CURLOPT_RESOLVE in the DNS cache of one multi handle, and the number of transfers that need each.
///
/// libcurl 7.88 walks its whole DNS cache at the end of each transfer, so the cache holds the entries of running
/// transfers only. Entries for numeric hosts expire at once (CURLOPT_DNS_CACHE_TIMEOUT is 0). The entries given to
/// libcurl never expire, and the next request removes those that no transfer needs. So libcurl finds an entry also when
/// it connects once more, and never looks up a name itself.
struct ResolvedNames {
    /// The entries that one transfer adds and removes, each as `HOST:PORT`.
    struct Use {
        fileprivate var added: [String] = []
        fileprivate var removed: [String] = []
        /// Those of `added` that libcurl had already, for no transfer.
        fileprivate var revived: [String] = []
    }

    private var transfers: [String: Int] = [:]
    /// Entries that libcurl has and no transfer needs: at most those of the transfers that ended since the last start.
    private var unused: Set<String> = []

    /// Adds a transfer.
    ///
    /// - Parameter entries: Its addresses, each as `HOST:PORT:ADDRESS,ADDRESS`. A plus sign in front, which would let an
    ///   entry expire, is dropped.
    /// - Returns: the lines of CURLOPT_RESOLVE, and what `end` takes.
    mutating func begin(_ entries: [String]) -> (lines: [String], use: Use) {
        var use = Use()
        guard !entries.isEmpty || !unused.isEmpty else { return ([], use) }
        let entries = entries.map { $0.utf8.first == UInt8(ascii: "+") ? String($0.dropFirst()) : $0 }
        for entry in entries {
            let name = Self.name(of: entry)
            use.added.append(name)
            transfers[name, default: 0] += 1
            if unused.remove(name) != nil { use.revived.append(name) }
        }
        use.removed = Array(unused)
        unused.removeAll(keepingCapacity: true)
        return (use.removed.map { "-\($0)" } + entries, use)
    }

    /// Removes a transfer that has left the multi handle.
    ///
    /// - Parameter wasRun: whether libcurl has read its lines.
    mutating func end(_ use: Use, wasRun: Bool) {
        for name in use.added {
            let count = transfers[name, default: 0] - 1
            transfers[name] = count > 0 ? count : nil
            if count <= 0, wasRun || use.revived.contains(name) { unused.insert(name) }
        }
        guard !wasRun else { return }
        for name in use.removed where transfers[name] == nil { unused.insert(name) }
    }

    /// The entry without its addresses.
    private static func name(of entry: String) -> String {
        let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        return parts.count == 3 ? "\(parts[0]):\(parts[1])" : entry
    }
}
