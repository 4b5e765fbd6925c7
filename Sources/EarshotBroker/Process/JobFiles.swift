internal import EarshotLoop
internal import EarshotWire

/// Certificate and key files that jobs name, and the hosts file, as far as each worker has them.
///
/// A worker in a sandbox cannot open them. So the broker reads a file before the first JOB that names it, and again
/// after a change of the file. It keeps versions only, and no content.
struct JobFiles {
    /// A place of a worker's table.
    private struct SentFile {
        let path: String
        /// Version of the content that the worker has; nil if it must be read again.
        var version: SmallFile.Version?
        /// Number of the last job that named it.
        var lastJobNumber: UInt64
    }

    /// Workers that receive files, and the places of their tables in use.
    private var sentFilesByWorker: [UInt64: [SentFile]] = [:]
    private var lastJobNumber: UInt64 = 0
    private static let hostsPath = "/etc/hosts"
    /// Time between two looks at the hosts file: the minimum time for which workers cache an address.
    private static let hostsCheckInterval = Duration.seconds(1)
    /// Version of the hosts file that all workers have.
    private var sentHostsVersion: SmallFile.Version?
    private var nextHostsCheck = LoopTime(nanoseconds: 0)

    /// - Parameter hasPredecessor: Whether there may be workers of an earlier broker, with another hosts file.
    init(hasPredecessor: Bool) {
        sentHostsVersion = hasPredecessor ? nil : SmallFile.Version(path: Self.hostsPath)
    }

    /// Records that a worker receives files, and has none yet.
    mutating func workerJoined(_ worker: UInt64) { sentFilesByWorker[worker] = [] }

    mutating func workerLeft(_ worker: UInt64) { sentFilesByWorker[worker] = nil }

    /// Returns the FILE messages with their contents that a worker must receive before a job of this route.
    mutating func fileMessages(for route: Route, to worker: UInt64) -> [(head: PoolMessage, content: [UInt8]?)] {
        guard !route.isDefault, var table = sentFilesByWorker[worker] else { return [] }
        lastJobNumber += 1
        var messages: [(head: PoolMessage, content: [UInt8]?)] = []
        for path in route.filePaths {
            let place = Self.tableIndex(of: path, in: &table)
            table[place].lastJobNumber = lastJobNumber
            if let version = table[place].version, version == SmallFile.Version(path: path) { continue }
            do throws(SmallFile.Fault) {
                let file = try SmallFile.read(path, maximumBytes: WireLimits.fileBytes)
                table[place].version = file.version
                messages.append((.fileContent(place, path: path, error: nil), file.content))
            } catch {
                table[place].version = nil
                messages.append((.fileContent(place, path: path, error: "\(error)"), nil))
            }
        }
        sentFilesByWorker[worker] = table
        return messages
    }

    /// Returns the FILE message with the hosts file for all workers, if the file has changed since the last look.
    mutating func changedHostsMessage(now: LoopTime) -> (head: PoolMessage, content: [UInt8], workers: [UInt64])? {
        guard now >= nextHostsCheck else { return nil }
        nextHostsCheck = now.advanced(by: Self.hostsCheckInterval)
        let version = SmallFile.Version(path: Self.hostsPath)
        guard version != sentHostsVersion else { return nil }
        sentHostsVersion = version
        // Without a file, there is nothing to look up in it.
        let file = try? SmallFile.read(Self.hostsPath, maximumBytes: WireLimits.requestBodyBytes)
        let head = PoolMessage.fileContent(WireLimits.filesPerWorker, path: Self.hostsPath, error: nil)
        return (head, file?.content ?? [], sentFilesByWorker.keys.sorted())
    }

    /// Returns the place of a path: its present one, a free one, or that of the file that was named least recently.
    private static func tableIndex(of path: String, in table: inout [SentFile]) -> Int {
        if let place = table.firstIndex(where: { $0.path == path }) { return place }
        let copy = SentFile(path: path, version: nil, lastJobNumber: 0)
        guard table.count == WireLimits.filesPerWorker else {
            table.append(copy)
            return table.count - 1
        }
        let oldest = table.indices.min { table[$0].lastJobNumber < table[$1].lastJobNumber } ?? 0
        table[oldest] = copy
        return oldest
    }
}
