internal import EarshotCore
internal import EarshotLoop

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
    func write(_ node: NodeID) { SmallFile.replace(path, with: Array(node.description.utf8)) }
}
