internal import EarshotLoop
internal import Glibc

/// File with the bytes of a body that the broker sends. An unnamed one disappears with this object and the files opened
/// by ``path``.
final class ReceivedFile: Sendable, Equatable {
    /// Folders for files without a preferred folder: files in `/var/tmp` do not occupy memory.
    private static let usualFolders = ["/var/tmp", "/tmp"]

    private let descriptor: Int32
    /// Reason why the file could not be created: the `errno` value; 0 for a file that exists.
    let obstacle: Int32

    /// Creates a file.
    ///
    /// - Parameter folder: preferred folder; nil for that of temporary files.
    init(in folder: String?) {
        var number = ENOENT
        for folder in [folder, Environment.value("TMPDIR")].compactMap(\.self) + Self.usualFolders {
            if let file = UnnamedFile.openPrivate(in: folder) {
                (descriptor, obstacle) = (file, 0)
                return
            }
            number = errno
        }
        (descriptor, obstacle) = (-1, number)
    }

    /// Uses a file of the consumer.
    ///
    /// - Parameter file: its descriptor, which this object closes, or the reason why there is none.
    init(_ file: BodyStoreFile) {
        switch file {
        case .open(let descriptor): (self.descriptor, obstacle) = (descriptor, 0)
        case .none(let number): (descriptor, obstacle) = (-1, number)
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Path by which this process can open the file, see ``BodyFile``.
    var path: String { BodyFile.path(of: descriptor) }

    /// Writes the first `count` bytes at an offset.
    ///
    /// - Returns: the `errno` value of a failure; 0 without one.
    func write(_ bytes: [UInt8], count: Int, at offset: Int) -> Int32 {
        guard obstacle == 0 else { return obstacle }
        var written = 0
        while written < count {
            let result = unsafe bytes.withUnsafeBytes { buffer in
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[written..<count])
                return unsafe pwrite(descriptor, rest.baseAddress, rest.count, off_t(offset + written))
            }
            if result < 0, errno == EINTR { continue }
            guard result > 0 else { return result < 0 ? errno : ENOSPC }
            written += result
        }
        return 0
    }

    static func == (left: ReceivedFile, right: ReceivedFile) -> Bool { left === right }
}

/// Consumer of a connection that stores bodies in files of its own, and follows them while they arrive.
package protocol BodyStore: AnyObject {
    /// Returns the file for the body of a terminal, whose delivery follows with the last byte.
    ///
    /// Called in a pass of the connection, which must not be closed here.
    func makeFile(for delivery: DeliveredTerminal) -> BodyStoreFile

    /// Handles that the first `bytes` bytes of that body are in the file.
    func received(_ bytes: Int, of delivery: DeliveredTerminal)
}

/// File of a ``BodyStore``.
package enum BodyStoreFile {
    /// Descriptor of an empty file for reading and writing, which the connection closes.
    case open(Int32)
    /// The file could not be created, or the body is not wanted: the `errno` value.
    case none(Int32)
}
