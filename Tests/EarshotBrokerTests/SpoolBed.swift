import EarshotLoop
import Foundation

@testable import EarshotBroker

/// A spool of a test's own. Once its folder is gone no file can be made in it, as on a disk that is full.
final class SpoolBed {
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
    let spool: Spool

    init() throws { spool = try Spool(folder.path) }

    deinit { removeFolder() }

    func removeFolder() { try? FileManager.default.removeItem(at: folder) }

    /// Bytes that the file that waits without a name has now; nil when there is none.
    ///
    /// It is found by the descriptor that this process has of it, which says where it was.
    var waitingBytes: Int? {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        let prefix = folder.path + "/"
        let own = names.first { name in
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(name)")
            return target?.hasPrefix(prefix) == true && target?.contains("-waiting.part") == true
        }
        guard let own else { return nil }
        let attributes = try? FileHandle(forReadingAtPath: "/proc/self/fd/\(own)")?.seekToEnd()
        return attributes.map { Int($0) }
    }
}
