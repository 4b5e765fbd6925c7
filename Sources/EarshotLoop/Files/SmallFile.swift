internal import Glibc

/// Content of a regular file of bounded size, and the version of the file that it belongs to.
///
/// Opening a FIFO does not block, and a device is not read.
public struct SmallFile: Sendable {
    /// Version of a file: changes when the file is replaced or written to.
    public struct Version: Equatable, Sendable {
        private let device: UInt
        private let inode: UInt
        private let size: Int
        /// Times of the last change of the content and of the inode, in nanoseconds.
        private let changeTimes: [Int]

        /// The version of the file at a path, following links; nil if it cannot be examined.
        public init?(path: String) {
            var status = stat()
            guard unsafe stat(ByteText.cString(path), &status) == 0 else { return nil }
            self.init(status)
        }

        fileprivate init(_ status: stat) {
            device = UInt(status.st_dev)
            inode = UInt(status.st_ino)
            size = Int(status.st_size)
            changeTimes = [status.st_mtim, status.st_ctim].map { $0.tv_sec * 1_000_000_000 + $0.tv_nsec }
        }

        /// Whether a later change would change the version. The clock of a file system advances by steps of some
        /// milliseconds, so two changes within a step are one version.
        fileprivate var distinguishesNextChange: Bool {
            var now = timespec()
            guard unsafe clock_gettime(CLOCK_REALTIME, &now) == 0 else { return false }
            let latestStable = now.tv_sec * 1_000_000_000 + now.tv_nsec - SmallFile.coarsestTimestampNanoseconds
            return changeTimes.allSatisfy { $0 < latestStable }
        }
    }

    /// Reason why a file cannot be read.
    public enum Fault: Error, Equatable, CustomStringConvertible {
        case systemError(number: Int32)
        case notRegularFile
        case sizeOutOfRange(most: Int)

        public var description: String {
            switch self {
            case .systemError(let number): unsafe String(cString: strerror(number))
            case .notRegularFile: "it is not a regular file"
            case .sizeOutOfRange(let most): "it is empty or longer than \(most) bytes"
            }
        }
    }

    /// Age of a change after which no other change has the same time: the granularity of FAT, the coarsest in use.
    fileprivate static let coarsestTimestampNanoseconds = 2_000_000_000

    /// Bytes of the whole file.
    public let content: [UInt8]
    /// Version of the file; nil if it may be equal before and after the next change.
    public let version: Version?

    /// Reads a file of 1 to `maximumBytes` bytes.
    public static func read(_ path: String, maximumBytes: Int) throws(Fault) -> SmallFile {
        let descriptor = unsafe open(ByteText.cString(path), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { throw .systemError(number: errno) }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw .systemError(number: errno) }
        guard status.st_mode & S_IFMT == S_IFREG else { throw .notRegularFile }
        guard status.st_size > 0, status.st_size <= maximumBytes else { throw .sizeOutOfRange(most: maximumBytes) }
        let version = Version(status)
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var count = 0
        while count < bytes.count {
            let read = unsafe bytes.withUnsafeMutableBytes { buffer in
                unsafe Glibc.read(descriptor, buffer.baseAddress?.advanced(by: count), buffer.count - count)
            }
            guard read >= 0 || errno == EINTR else { throw .systemError(number: errno) }
            // The file was truncated after `fstat`.
            guard read != 0 else { break }
            count += max(read, 0)
        }
        return SmallFile(content: Array(bytes[..<count]), version: version.distinguishesNextChange ? version : nil)
    }
}

extension SmallFile {
    /// Creates or replaces a file, with the mode 0600. Readers see the former content or the new one. If the write
    /// fails, the former file stays. Nothing is flushed to the disk.
    public static func replace(_ path: String, with bytes: [UInt8]) {
        let draft = path + ".new"
        let descriptor = unsafe open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return }
        let count = unsafe write(descriptor, bytes, bytes.count)
        close(descriptor)
        if count == bytes.count { _ = unsafe rename(draft, path) } else { _ = unsafe unlink(draft) }
    }
}
