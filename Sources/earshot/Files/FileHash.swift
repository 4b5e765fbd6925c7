internal import EarshotLoop
internal import Glibc
internal import LibCrypto

/// SHA-256 of open files and of files in a folder, with which `Destination` and `OutputBody` compare bodies.
extension SHA256 {
    /// Maximum number of bytes in memory.
    private static let chunkBytes = 1 << 20

    /// Adds the first `length` bytes of an open file. Returns whether the file has them.
    mutating func add(_ file: Int32, length: Int) -> Bool {
        var bytes = [UInt8](repeating: 0, count: min(length, Self.chunkBytes))
        var offset = 0
        while offset < length {
            let count = unsafe pread(file, &bytes, min(bytes.count, length - offset), off_t(offset))
            guard count > 0 else { return false }
            update(bytes.span.extracting(..<count))
            offset += count
        }
        return true
    }
}

extension OpenFolder {
    /// Returns the SHA-256 of a regular file of the directory, as hexadecimal digits. Nil for a file of another length.
    func sha256(of name: String, length: Int) -> String? {
        let file = unsafe openat(descriptor, ByteText.cString(name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, Int(status.st_size) == length
        else { return nil }
        var hash = SHA256()
        return hash.add(file, length: length) ? hash.finalize().hex : nil
    }
}
