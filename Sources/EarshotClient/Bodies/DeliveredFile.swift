internal import EarshotWire
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

/// Terminal with its body. The file is open, so the terminal can be acknowledged.
enum DeliveredEnding {
    case response(Response)
    case failed(BusError)
    /// The body's file is missing. The request can be repeated.
    case isGone

    init(_ delivery: DeliveredTerminal, _ bytes: [UInt8]) {
        if let number = delivery.storeFailure {
            self = .failed(.cannotStore(number))
            return
        }
        do throws(DeliveredFile.Failure) {
            switch delivery.terminal.outcome {
            case .result(let status, let response):
                self = .response(Response(status: status, response, body: try Self.body(response, bytes)))
            case .failed(let failure):
                guard let response = failure.response else {
                    self = .failed(BusError(failure, page: nil))
                    return
                }
                let page = Response(
                    status: failure.status ?? 0, response, body: try Self.body(response, bytes))
                self = .failed(BusError(failure, page: page))
            }
        } catch {
            switch error {
            case .isGone: self = .isGone
            case .cannotOpen(let number): self = .failed(.cannotOpen(number))
            }
        }
    }

    private static func body(
        _ response: Terminal.Response, _ bytes: [UInt8]
    ) throws(DeliveredFile.Failure) -> ResponseBody {
        guard let path = response.file else { return ResponseBody(bytes) }
        return ResponseBody(
            try DeliveredFile(path, length: response.length), length: response.length, response.generation)
    }
}

/// Files of bodies, as named by ``DeliveredTerminal`` and by reports of progress.
package enum BodyFile {
    /// Folder of links to the open files of this process, proc(5).
    private static let ownFiles = "/proc/self/fd/"
    /// Path of a file that is missing.
    static let missingFile = ownFiles + "missing"

    /// Returns the path of an open file of this process.
    static func path(of descriptor: Int32) -> String { "\(ownFiles)\(descriptor)" }

    /// Returns whether a path names a file that this process received from the broker.
    ///
    /// - Parameter path: path of a body.
    /// - Returns: false for a file of the broker's spool.
    package static func isReceived(_ path: String) -> Bool { path.hasPrefix(ownFiles) }

    /// Opens the file of a body for reading, without following links.
    ///
    /// - Parameter path: path of the body.
    /// - Returns: a descriptor that the caller closes; -1 with the reason in `errno`.
    package static func open(_ path: String) -> Int32 {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK
        guard isReceived(path) else { return unsafe Glibc.open(path, flags | O_NOFOLLOW) }
        let opened = unsafe Glibc.open(path, flags)
        guard opened < 0, errno == ENOENT, let number = Int32(path.dropFirst(ownFiles.utf8.count)) else {
            return opened
        }
        // Without /proc. A copy of the descriptor shares the offset, which only readers change.
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 0)
        if copy >= 0 { lseek(copy, 0, SEEK_SET) }
        return copy
    }
}
