internal import EarshotLoop
internal import Glibc

/// Lock of a ``BackgroundRecord``: one process writes the bodies, and at most one more waits to be the next.
///
/// The first one holds a lock on the file's first byte, lockf(3), the waiting one a lock on the second byte. Both end with
/// their process.
final class BackgroundLock {
    /// Byte of the process that writes the bodies.
    private static let turn: off_t = 0
    /// Byte of the process that waits.
    private static let place: off_t = 1

    private let descriptor: Int32
    private let path: String

    private init(_ descriptor: Int32, _ path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// Creates the file, and waits until no other process writes the bodies.
    ///
    /// - Returns: nil if another process waits. It begins later than this call, so it sees all requests of now.
    static func take(_ record: BackgroundRecord, at path: String) throws -> BackgroundLock? {
        let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        try PrivateFolder.makeStore(folder)
        while true {
            let file = unsafe open(ByteText.path(path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard file >= 0 else { throw SystemError("open \(path)", number: errno) }
            let lock = BackgroundLock(file, path)
            guard lock.change(F_TLOCK, place) else { return nil }
            guard lock.change(F_LOCK, turn) else { throw SystemError("lock \(path)", number: errno) }
            // Released before the requests are counted, so that a later process takes care of later requests.
            _ = lock.change(F_ULOCK, place)
            // The last process may have removed the file.
            guard lock.isAt(path) else { continue }
            let bytes = record.bytes
            guard unsafe pwrite(file, bytes, bytes.count, 0) == bytes.count else {
                throw SystemError("write \(path)", number: errno)
            }
            return lock
        }
    }

    /// Removes the file, because no request has failed.
    func forget() { if isAt(path) { unsafe unlink(ByteText.path(path)) } }

    private func isAt(_ path: String) -> Bool {
        FileIdentity(path: path).map { $0 == FileIdentity(descriptor: descriptor) } ?? false
    }

    private func change(_ command: Int32, _ byte: off_t) -> Bool {
        while lseek(descriptor, byte, SEEK_SET) == byte {
            if lockf(descriptor, command, 1) == 0 { return true }
            if errno != EINTR { return false }
        }
        return false
    }
}
