internal import EarshotLoop
internal import Glibc

/// Folder of partial bodies that outlive their bus: `NAME.body` with its head in `NAME.head`. The subfolder `growing`
/// has the heads of bodies that a worker writes.
public enum PartFolder {
    private static let body = ".body"
    private static let head = ".head"
    private static let growing = "growing"

    /// Returns number and size of the partial bodies; zeros for a missing folder. O(parts).
    /// - Throws: `StoreError`.
    public static func totals(of path: String) throws(StoreError) -> (parts: Int, bytes: Int) {
        var totals = (parts: 0, bytes: 0)
        try forEachFile(in: path) { folder, name in
            var status = stat()
            guard name.hasSuffix(body), unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return }
            totals.parts += 1
            totals.bytes += status.st_size
        }
        return totals
    }

    /// Removes all partial bodies and heads, also while a broker uses the folder. O(parts).
    /// - Returns: Number of partial bodies removed.
    /// - Throws: `StoreError`.
    public static func clear(_ path: String) throws(StoreError) -> Int {
        var count = 0
        try forEachFile(in: path) { (folder, name) throws(StoreError) in
            guard name.hasSuffix(body) || name.hasSuffix(head) else { return }
            if try remove(name, in: folder, path), name.hasSuffix(body) { count += 1 }
        }
        try forEachFile(in: "\(path)/\(growing)") { (folder, name) throws(StoreError) in
            _ = try remove(name, in: folder, path)
        }
        return count
    }

    /// - Returns: Whether the file existed.
    private static func remove(_ name: String, in folder: Int32, _ path: String) throws(StoreError) -> Bool {
        if unsafe unlinkat(folder, name, 0) == 0 { return true }
        guard errno == ENOENT else {
            throw StoreError("cannot remove partial bodies in \(path): \(SystemError("unlink", number: errno))")
        }
        return false
    }

    /// Calls `use` with the open folder and the name of each entry; not at all if there is no folder.
    private static func forEachFile(
        in path: String, _ use: (Int32, String) throws(StoreError) -> Void
    ) throws(StoreError) {
        do throws(FolderError) {
            guard try PrivateFolder.isStore(path) else { return }
        } catch { throw StoreError(error) }
        let folder = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0, let stream = unsafe fdopendir(folder) else {
            throw StoreError("cannot read the folder of partial bodies \(path): \(SystemError("open", number: errno))")
        }
        defer { unsafe closedir(stream) }
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { try use(folder, name) }
        }
    }
}
