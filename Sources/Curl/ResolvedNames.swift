/// Reference counts of the CURLOPT_RESOLVE entries in the DNS cache of a multi handle.
///
/// libcurl 7.88 scans its whole DNS cache at the end of each transfer, so the cache contains only entries of running
/// transfers. Entries for numeric hosts expire at once (CURLOPT_DNS_CACHE_TIMEOUT is 0). Entries passed to libcurl
/// never expire, and the next request removes those without a transfer. libcurl therefore finds an entry for a
/// reconnection too, and never resolves a name itself.
struct ResolvedNames {
    /// Entries that one transfer adds and removes, each as `HOST:PORT`.
    struct TransferEntries {
        fileprivate var addedEntries: [String] = []
        fileprivate var removedEntries: [String] = []
        /// Added entries that libcurl already had without a transfer.
        fileprivate var revivedEntries: [String] = []
    }

    private var transferCounts: [String: Int] = [:]
    /// Entries in libcurl without a transfer: at most those of transfers that ended since the last start.
    private var unusedEntries: Set<String> = []

    /// Adds the entries of a transfer.
    ///
    /// - Parameter entries: Addresses, each as `HOST:PORT:ADDRESS,ADDRESS`. A leading plus sign, which would make an
    ///   entry expire, is removed.
    /// - Returns: Lines for CURLOPT_RESOLVE, and the argument of `removeEntries`.
    mutating func addEntries(_ entries: [String]) -> (lines: [String], use: TransferEntries) {
        var use = TransferEntries()
        guard !entries.isEmpty || !unusedEntries.isEmpty else { return ([], use) }
        let entries = entries.map { $0.utf8.first == UInt8(ascii: "+") ? String($0.dropFirst()) : $0 }
        for entry in entries {
            let name = Self.hostAndPort(of: entry)
            use.addedEntries.append(name)
            transferCounts[name, default: 0] += 1
            if unusedEntries.remove(name) != nil { use.revivedEntries.append(name) }
        }
        use.removedEntries = Array(unusedEntries)
        unusedEntries.removeAll(keepingCapacity: true)
        return (use.removedEntries.map { "-\($0)" } + entries, use)
    }

    /// Removes the entries of a transfer that has left the multi handle.
    ///
    /// - Parameter wasRun: Whether libcurl has processed its lines.
    mutating func removeEntries(_ use: TransferEntries, wasRun: Bool) {
        for name in use.addedEntries {
            let count = transferCounts[name, default: 0] - 1
            transferCounts[name] = count > 0 ? count : nil
            if count <= 0, wasRun || use.revivedEntries.contains(name) { unusedEntries.insert(name) }
        }
        guard !wasRun else { return }
        for name in use.removedEntries where transferCounts[name] == nil { unusedEntries.insert(name) }
    }

    /// Returns the entry without its addresses.
    private static func hostAndPort(of entry: String) -> String {
        let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        return parts.count == 3 ? "\(parts[0]):\(parts[1])" : entry
    }
}
