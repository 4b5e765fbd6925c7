internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// A body's file in the spool while it is written. Deleted with this object unless it was kept.
final class SpoolFile {
    /// The base name.
    let name: String
    private let folder: SpoolFolder
    /// -1 once closed.
    private(set) var descriptor: Int32
    private var isKept = false
    /// Bytes that may be written before it is looked again how much is free.
    private var roomBytes = 0

    /// The file's name says whose it is, so that what a dead worker left can be told from what a live one writes.
    ///
    /// - Parameter isAnew: whether the attempt was given a file to go on with, and this one is for another body.
    static func name(_ attempt: AttemptID, pid: Int32, isAnew: Bool = false) -> String {
        "\(pid)-\(attempt)\(isAnew ? ".anew" : "").part"
    }

    init(_ name: String, in folder: SpoolFolder) throws(SystemError) {
        self.name = name
        self.folder = folder
        descriptor = try folder.create(name)
    }

    /// Goes on with a file behind its first `bytes` bytes; what is behind them is cut off.
    init(_ name: String, in folder: SpoolFolder, behind bytes: Int) throws(SystemError) {
        self.name = name
        self.folder = folder
        descriptor = try folder.reopen(name, bytes: bytes)
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if !isKept { folder.delete(name) }
    }

    /// Writes all of `bytes` at the end.
    func write(_ bytes: Span<UInt8>) throws(SystemError) {
        if bytes.count > roomBytes { roomBytes = try folder.room(for: bytes.count) }
        roomBytes -= bytes.count
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

    /// Lets the file be as it is, for the broker: not deleted with this object, and written to no more.
    func leave() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
        isKept = true
    }

    /// Ends the file: read-only from now on, and not deleted with this object.
    func keep() throws(SystemError) {
        guard fchmod(descriptor, 0o400) == 0 else { throw SystemError("chmod spool file", number: errno) }
        let closed = close(descriptor)
        descriptor = -1
        // Some file systems tell of a full disk only here.
        guard closed == 0 || errno == EINTR else { throw SystemError("close spool file", number: errno) }
        isKept = true
    }
}
