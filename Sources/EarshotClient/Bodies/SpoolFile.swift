internal import Glibc

/// A file of the spool that was opened, and is there as long as this is, whatever becomes of its names.
///
/// So a terminal is acknowledged as soon as it has come: one that waited for its reader would hold up all later ones,
/// since acknowledgements are in order.
final class SpoolFile: Sendable {
    /// Why a file could not be opened.
    enum Failure: Error {
        /// It is not there, or is not what was told: its name may have changed, or a broker has emptied its spool.
        case isGone
        /// The process cannot open it: the `errno` value.
        case cannotOpen(Int32)
    }

    private let descriptor: Int32

    /// - Parameter length: bytes that it must have; nil while it grows.
    init(_ path: String, length: Int?) throws(Failure) {
        descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
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

    /// A name by which any program of the user can open the file while this process has it open: proc(5).
    var path: String { "/proc/\(getpid())/fd/\(descriptor)" }

    /// At most `count` bytes from `offset` on; none at the end.
    ///
    /// - Throws: `BusError`, ``BusError/Code/bodyLost``, when the disk does.
    func read(at offset: Int, count: Int) throws(BusError) -> [UInt8] {
        var number: Int32 = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            var got = unsafe pread(descriptor, buffer.baseAddress, count, off_t(offset))
            while got < 0, errno == EINTR { got = unsafe pread(descriptor, buffer.baseAddress, count, off_t(offset)) }
            number = got < 0 ? errno : 0
            filled = max(got, 0)
        }
        guard number == 0 else {
            throw BusError(.bodyLost, unsafe "The body's file cannot be read: \(String(cString: strerror(number))).")
        }
        return bytes
    }
}
