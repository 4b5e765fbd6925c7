internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// File in the runtime directory that names children in a crash loop. Clients read it while no broker answers.
struct FailureReport {
    /// Maximum size of the file, in bytes. A thousand entries are smaller.
    private static let mostBytes = 1 << 17

    private let folder: RuntimeFolder
    private var path: String { folder.path + "/failing" }

    init(_ folder: RuntimeFolder) {
        self.folder = folder
    }

    /// Replaces the file. On a full disk the file is missing, and only the log has the failures.
    func write(_ failures: [ChildFailure]) {
        let bytes = Array(failures.map { $0.line + "\n" }.joined().utf8)
        SmallFile.replace(path, with: bytes)
    }

    func remove() { _ = unsafe unlink(path) }

    /// Messages about the failing children; empty without a running supervisor.
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
