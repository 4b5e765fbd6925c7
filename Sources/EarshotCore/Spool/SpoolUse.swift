/// Bytes in the spool by kind, without kept parts. Workers report some of the numbers, so sums wrap around.
struct SpoolUse: Equatable {
    /// Of files that `fileHolders` knows, by name.
    private(set) var files: [String: Int] = [:]
    private(set) var fileBytes = 0
    /// Of files that workers write, as far as they told.
    var growingBytes = 0
    /// Of terminals that wait in the shell's file.
    var waitingBytes = 0

    var bytes: Int { fileBytes &+ growingBytes &+ waitingBytes }

    mutating func add(_ file: String, _ bytes: Int) {
        guard files[file] == nil else { return }
        files[file] = bytes
        fileBytes &+= bytes
    }

    mutating func remove(_ file: String) {
        fileBytes &-= files.removeValue(forKey: file) ?? 0
    }
}
