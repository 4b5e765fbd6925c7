internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// The spool file of a body while it is written, locked by this process. Deleted together with this object unless it is
/// kept.
final class SpoolFile {
    /// Base name.
    let name: String
    private let folder: SpoolFolder
    /// -1 once closed.
    private(set) var descriptor: Int32
    private var isFileKept = false
    /// Bytes that may be written before the free space is checked again.
    private var bytesUntilSpaceCheck = 0

    init(_ name: String, in folder: SpoolFolder) throws(SystemError) {
        self.name = name
        self.folder = folder
        descriptor = try folder.create(name)
    }

    /// Continues a file after its first `bytes` bytes. Later bytes are truncated.
    init(_ name: String, in folder: SpoolFolder, resumingAt bytes: Int) throws(SystemError) {
        self.name = name
        self.folder = folder
        descriptor = try folder.reopenFile(name, truncatedTo: bytes)
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if !isFileKept { folder.delete(name) }
    }

    /// Appends all of `bytes`.
    func write(_ bytes: Span<UInt8>) throws(SystemError) {
        if bytes.count > bytesUntilSpaceCheck { bytesUntilSpaceCheck = try folder.writableBytes(for: bytes.count) }
        bytesUntilSpaceCheck -= bytes.count
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.extracting(written..<bytes.count).withUnsafeBufferPointer { buffer in
                unsafe Glibc.write(descriptor, buffer.baseAddress, buffer.count)
            }
            if count > 0 {
                written += count
            } else {
                let number = count == 0 ? ENOSPC : errno
                guard number == EINTR else { throw SystemError("write spool file", number: number) }
            }
        }
    }

    /// Unlocks and closes the file and leaves it to the broker.
    ///
    /// - Returns: Whether its bytes are there. Some file systems report a full disk only on close. Such a file is
    ///   deleted.
    @discardableResult
    func closeWithoutDeleting() -> Bool {
        if descriptor >= 0 {
            // Hash threads may have duplicates, which share the lock.
            flock(descriptor, LOCK_UN)
            isFileKept = close(descriptor) == 0 || errno == EINTR
        }
        descriptor = -1
        return isFileKept
    }

    /// Completes the file: makes it read-only, closes it and prevents its deletion with this object.
    func completeFile() throws(SystemError) {
        guard fchmod(descriptor, 0o400) == 0 else { throw SystemError("chmod spool file", number: errno) }
        let closed = close(descriptor)
        descriptor = -1
        // Some file systems report a full disk only on close.
        guard closed == 0 || errno == EINTR else { throw SystemError("close spool file", number: errno) }
        isFileKept = true
    }
}
