internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// A file in the runtime folder in which a supervisor whose broker fails says so: there may be no broker to ask.
struct FailureReport {
    /// More than a thousand places fill.
    private static let mostBytes = 1 << 17

    private let folder: RuntimeFolder
    private var path: String { folder.path + "/failing" }

    init(_ folder: RuntimeFolder) {
        self.folder = folder
    }

    /// Replaces what it says. Without room on the disk it is not there, and the log tells as well.
    func write(_ failures: [ChildFailure]) {
        let bytes = Array(failures.map { $0.line + "\n" }.joined().utf8)
        let draft = path + ".new"
        let descriptor = unsafe open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return }
        let count = unsafe Glibc.write(descriptor, bytes, bytes.count)
        close(descriptor)
        if count == bytes.count { _ = unsafe rename(draft, path) } else { _ = unsafe unlink(draft) }
    }

    func remove() { _ = unsafe unlink(path) }

    /// A sentence for each failing place, for people; none while no supervisor runs that could have said it.
    func sentences() -> [String] {
        let isSupervised = (try? LockFile.isHeld(folder.supervisorLock)) ?? false
        guard isSupervised, let bytes = try? InputFile.read(path, atMost: Self.mostBytes) else {
            return []
        }
        let text = String(decoding: bytes, as: UTF8.self)
        return text.split(separator: "\n").compactMap { ChildFailure(line: String($0)) }.map { failure in
            "the \(failure.role) ended \(failure.deaths) times in a row since \(failure.since), last with \(failure.lastEnd)"
        }
    }
}
