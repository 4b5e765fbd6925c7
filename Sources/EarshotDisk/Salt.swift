internal import EarshotLoop
internal import Glibc
internal import LibCrypto

/// Random bytes in a file, which keep the digests of keys from being searched for common URLs and credentials.
public enum Salt {
    private static let byteCount = 32

    /// Returns the 32 bytes of the file `path`, which the first caller creates with mode 0600.
    ///
    /// Several threads and processes may call this at once: all get the same bytes.
    /// - Throws: `StoreError`.
    public static func read(_ path: String) throws(StoreError) -> [UInt8] {
        if let bytes = readFile(path) { return bytes }
        let draft = "\(path).\(Hex.encode(Secret.randomBytes(8)))"
        let bytes = Secret.randomBytes(byteCount)
        let file = unsafe open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw StoreError("cannot write \(path): \(SystemError("open", number: errno))") }
        defer { unsafe unlink(draft) }
        let count = unsafe write(file, bytes, byteCount)
        let number = errno
        close(file)
        guard count == byteCount else {
            throw StoreError("cannot write \(path): \(SystemError("write", number: count < 0 ? number : ENOSPC))")
        }
        if FileMover.renameWithoutReplacing(draft, to: path) { return bytes }
        if errno == EEXIST, let bytes = readFile(path) { return bytes }
        // The file is truncated.
        guard unsafe rename(draft, path) == 0 else {
            throw StoreError("cannot write \(path): \(SystemError("rename", number: errno))")
        }
        return bytes
    }

    /// Returns the bytes; nil if the file is missing or truncated.
    private static func readFile(_ path: String) -> [UInt8]? {
        let file = unsafe open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: byteCount)
        return unsafe Glibc.read(file, &bytes, byteCount) == byteCount ? bytes : nil
    }
}
