import EarshotLoop
import Foundation

@testable import EarshotBroker

/// A spool in a temporary folder. After the folder is removed no file can be created in it, as on a full disk.
final class SpoolBed {
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
    let spool: SpoolFiles

    init() throws { spool = try SpoolFiles(folder.path) }

    deinit { removeFolder() }

    func removeFolder() { try? FileManager.default.removeItem(at: folder) }

    /// Length of the unlinked file of spilled data, in bytes; nil if there is none.
    ///
    /// The file is found through this process's descriptors, whose link names its former path.
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

/// Pseudorandom numbers from a seed.
struct Chance {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func below(_ bound: Int) -> Int {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int(state >> 33) % bound
    }
}
