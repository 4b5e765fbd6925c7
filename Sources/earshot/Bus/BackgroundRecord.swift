internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Note of an `earshot watch` in the background, so that `earshot retry` can start it again for the requests that failed.
///
/// It is a file below `earshot/background` in the user's state folder, named by the hash of its content. Its lock orders the
/// processes of one note: see ``BackgroundLock``.
struct BackgroundRecord: Equatable {
    /// Version of the form, the first text in a file.
    private static let version = "1"
    /// Maximum size of a file in bytes: a few texts, most of them paths.
    private static let mostBytes = 64 << 10
    /// Maximum number of files that are read. More remain unused until others are removed.
    private static let mostFiles = 10_000
    /// Age in seconds after which a file is removed: no durable request lives longer than a year.
    private static let mostSeconds = 366 * 86_400

    /// Options that select the bus, at least one.
    let bus: [String]
    /// Handler, or NAME/ for all below a name.
    let handler: String
    let directory: String
    /// Path of the log; empty for none.
    let log: String
    /// Program for each result with its arguments; empty for none.
    let exec: String

    /// Content of the file.
    var bytes: [UInt8] {
        Array(([Self.version, handler, directory, log, exec] + bus).joined(separator: "\0").utf8)
    }

    /// Path of the file; nil without a state folder.
    var path: String? {
        guard let folder = Self.folder else { return nil }
        var hash = SHA256()
        hash.update(bytes.span)
        return "\(folder)/\(hash.finalize().hex)"
    }

    /// Whether the requests of a handler are those of this note.
    func covers(_ handler: HandlerID, on bus: [String]) -> Bool {
        self.bus == bus && HandlerPattern(self.handler)?.matches(handler) == true
    }

    /// Reads the content of a file; nil for another one.
    init?(_ bytes: [UInt8]) {
        let words = bytes.split(separator: 0, omittingEmptySubsequences: false).map { ByteText.text(of: Array($0)) }
        guard words.count >= 6, words[0] == Self.version else { return nil }
        self.init(bus: Array(words[5...]), handler: words[1], directory: words[2], log: words[3], exec: words[4])
    }

    init(bus: [String], handler: String, directory: String, log: String, exec: String) {
        self.bus = bus
        self.handler = handler
        self.directory = directory
        self.log = log
        self.exec = exec
    }

    /// `earshot/background` in `XDG_STATE_HOME`, else in `~/.local/state`; nil if neither variable is set.
    static var folder: String? {
        let state = Environment.value("XDG_STATE_HOME") ?? Environment.value("HOME").map { "\($0)/.local/state" }
        return state.map { Folder.absolute("\($0)/earshot/background") }
    }

    /// Returns the notes of this user. Removes outdated ones.
    static func all() -> [BackgroundRecord] {
        guard let folder, (try? PrivateFolder.isStore(folder)) == true,
            let entries = unsafe opendir(ByteText.path(folder))
        else { return [] }
        defer { unsafe closedir(entries) }
        var records: [BackgroundRecord] = []
        let now = time(nil)
        while records.count < mostFiles, let entry = unsafe readdir(entries) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe ByteText.text(cString: $0) }
            }
            let path = "\(folder)/\(name)"
            var status = stat()
            guard unsafe lstat(ByteText.path(path), &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
            guard now - status.st_mtim.tv_sec < mostSeconds else {
                unsafe unlink(ByteText.path(path))
                continue
            }
            if let bytes = try? InputFile.contents(of: path, atMost: mostBytes), let record = BackgroundRecord(bytes) {
                records.append(record)
            }
        }
        return records
    }
}
