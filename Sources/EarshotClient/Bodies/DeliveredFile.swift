internal import Glibc

/// Open file of a body. It exists as long as this object, even if its names are removed.
///
/// A terminal can therefore be acknowledged on arrival. Acknowledgements are cumulative, so one that waited for its
/// reader would delay all later ones.
final class DeliveredFile: Sendable {
    /// Failure to open a file.
    enum Failure: Error {
        /// The file is missing, or not the announced one: it was renamed, or a broker emptied its spool.
        case isGone
        /// The process cannot open the file: the `errno` value.
        case cannotOpen(Int32)
    }

    private let descriptor: Int32

    /// Opens a file.
    ///
    /// - Parameter length: required length in bytes; nil for a file that grows.
    init(_ path: String, length: Int?) throws(Failure) {
        descriptor = BodyFile.open(path)
        guard descriptor >= 0 else {
            let number = errno
            throw number == ENOENT || number == ENOTDIR || number == ELOOP ? .isGone : .cannotOpen(number)
        }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            length == nil || Int(status.st_size) == length
        else { throw .isGone }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Path by which processes of the user can open the file while this process has it open, see proc(5).
    var path: String { "/proc/\(getpid())/fd/\(descriptor)" }

    /// Returns up to `count` bytes from `offset`; none at the end.
    ///
    /// - Throws: `BusError` with ``BusError/Code/bodyLost`` if the file cannot be read.
    func read(at offset: Int, count: Int) throws(BusError) -> [UInt8] {
        var number: Int32 = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            var got = unsafe pread(descriptor, buffer.baseAddress, count, off_t(offset))
            while got < 0, errno == EINTR { got = unsafe pread(descriptor, buffer.baseAddress, count, off_t(offset)) }
            number = got < 0 ? errno : 0
            filled = max(got, 0)
        }
        guard number == 0 else {
            throw BusError(.bodyLost, unsafe "Cannot read the file of the body: \(String(cString: strerror(number))).")
        }
        return bytes
    }
}
