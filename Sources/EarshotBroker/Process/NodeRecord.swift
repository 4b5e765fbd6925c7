internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// File of the runtime folder with the latest ID under which this node joined its cluster. The next process ends that
/// membership at once, where the engine would wait for the end of its lease.
struct NodeRecord {
    private let path: String

    init(runtimeFolder: String) { path = runtimeFolder + "/node" }

    /// Latest ID; nil without a file of this form.
    func read() -> NodeID? {
        guard let file = try? SmallFile.read(path, most: 16) else { return nil }
        return NodeID(String(decoding: file.bytes, as: UTF8.self))
    }

    /// Replaces the file. If that fails, the next process waits for the lease.
    func write(_ node: NodeID) {
        let bytes = Array(node.description.utf8)
        let draft = path + ".new"
        let descriptor = unsafe open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return }
        let count = unsafe Glibc.write(descriptor, bytes, bytes.count)
        close(descriptor)
        if count == bytes.count { _ = unsafe rename(draft, path) } else { _ = unsafe unlink(draft) }
    }
}
