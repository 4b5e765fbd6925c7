/// Names of files in the spool, by the state of the body in them.
///
/// | name | file |
/// | --- | --- |
/// | `PID-INSTANCE.FLIGHT.ATTEMPT.part` | an unfinished body, which a worker's process writes |
/// | `PID-INSTANCE.FLIGHT.ATTEMPT.anew.part` | the same, for a body that replaces the offered part |
/// | `INSTANCE.FLIGHT.ATTEMPT.kept` | a part of a body, for the next attempt |
/// | `INSTANCE.NUMBER.taken` | a body that one client owns |
/// | SHA-256, 64 digits | any other body |
/// | `SHA-256.waiting` | a body that the broker moved from memory, while its terminal waits |
/// | `PID-copy.part`, `PID-waiting.part` | a body or terminals, while the broker writes them |
/// | `PID-cache.N.part`, `PID-durable.N.part` | a stored body that `EarshotCache` or `EarshotDurable` has linked |
/// | `worker-PID` | folder of the unfinished bodies of one worker's process, the only one that its sandbox permits |
public enum SpoolName {
    private static let partSuffix = ".part"
    private static let keptPartSuffix = ".kept"
    private static let takenFileSuffix = ".taken"
    private static let spilledBodySuffix = ".waiting"
    private static let workerFolderPrefix = "worker-"

    /// Returns the name of the folder in which a worker's process writes.
    public static func workerFolder(pid: Int32) -> String { workerFolderPrefix + String(pid) }

    /// Returns the process that writes in a folder of this name; nil for other names.
    public static func workerPID(ofFolder name: String) -> Int32? {
        name.hasPrefix(workerFolderPrefix) ? Int32(name.dropFirst(workerFolderPrefix.utf8.count)) : nil
    }

    /// Returns the path of a file below the spool: an unfinished body is in the folder of its worker.
    public static func relativePath(of name: String) -> String {
        guard let writer = writer(of: name), writer.attempt != nil else { return name }
        return "\(workerFolder(pid: writer.pid))/\(name)"
    }

    /// Returns the spool of a partial body at an absolute path: an unfinished one in the folder of its worker, or one
    /// for the next attempt; nil for other paths.
    public static func spoolPath(ofPart path: String) -> String? {
        let words = path.split(separator: "/", omittingEmptySubsequences: false)
        guard words.count > 2, let name = words.last.map(String.init) else { return nil }
        guard !isKeptPart(name) else { return words.dropLast().joined(separator: "/") }
        let folder = String(words[words.count - 2])
        guard let pid = workerPID(ofFolder: folder), writer(of: name)?.pid == pid else { return nil }
        return words.dropLast(2).joined(separator: "/")
    }

    /// Returns the name of a body while a process writes it.
    ///
    /// - Parameter startsAnew: Whether the broker offered a part to the attempt, but the worker writes another
    ///   body.
    public static func partFile(of attempt: AttemptID, pid: Int32, startsAnew: Bool = false) -> String {
        "\(pid)-\(attempt)\(startsAnew ? ".anew" : "")\(partSuffix)"
    }

    /// Returns the name of a file while the broker's process writes it.
    public static func temporaryFile(for purpose: String, pid: Int32) -> String { "\(pid)-\(purpose)\(partSuffix)" }

    /// Returns whether a process may write a file of this name for an attempt.
    public static func isPart(_ name: String, of attempt: AttemptID, pid: Int32) -> Bool {
        name == partFile(of: attempt, pid: pid) || name == partFile(of: attempt, pid: pid, startsAnew: true)
    }

    /// Returns the name of an attempt's part for the next attempt.
    public static func keptPart(of attempt: AttemptID) -> String { "\(attempt)\(keptPartSuffix)" }

    /// Returns whether a file is a part for the next attempt.
    public static func isKeptPart(_ name: String) -> Bool { name.hasSuffix(keptPartSuffix) }

    /// Returns the name of a body that the broker moves from memory. A completed file may have the same content.
    public static func spilledBody(sha256: String) -> String { sha256 + spilledBodySuffix }

    /// Returns whether a file is a body that the broker moved from memory.
    public static func isSpilledBody(_ name: String) -> Bool { name.hasSuffix(spilledBodySuffix) }

    /// Returns a name for a body that one client owns, with a number that this broker uses once.
    public static func takenFile(_ number: UInt64, by broker: BrokerInstance) -> String {
        "\(broker).\(number)\(takenFileSuffix)"
    }

    /// Returns whether one client owns the file.
    public static func isTakenFile(_ name: String) -> Bool { name.hasSuffix(takenFileSuffix) }

    /// Returns whether a file has the name of its content.
    public static func isContentAddressed(_ name: String) -> Bool { Ascii.isSHA256(Array(name.utf8)[...]) }

    /// Returns the process that writes an unfinished file, and the attempt if the file is a body; nil for other names.
    public static func writer(of name: String) -> (pid: Int32, attempt: AttemptID?)? {
        guard name.hasSuffix(partSuffix) else { return nil }
        let words = name.split(separator: "-", maxSplits: 1)
        guard words.count == 2, let pid = Int32(words[0]) else { return nil }
        return (pid, AttemptID(words[1].split(separator: ".").prefix(3).joined(separator: ".")))
    }
}
