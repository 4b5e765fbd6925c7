internal import EarshotLoop
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
        case fileMissing
        /// The process cannot open the file: the `errno` value.
        case cannotOpen(Int32)
    }

    private let descriptor: Int32

    /// Opens a file.
    ///
    /// - Parameter requiredLength: required length in bytes; nil for a file that grows.
    init(path: String, requiredLength: Int?) throws(Failure) {
        descriptor = BodyFile.open(path)
        guard descriptor >= 0 else {
            let number = errno
            throw number == ENOENT || number == ENOTDIR || number == ELOOP ? .fileMissing : .cannotOpen(number)
        }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            requiredLength == nil || Int(status.st_size) == requiredLength
        else { throw .fileMissing }
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
    case bodyMissing

    init(delivery: DeliveredTerminal, bodyBytes bytes: [UInt8]) {
        if let number = delivery.storeFailure {
            self = .failed(.cannotStore(number))
            return
        }
        do throws(DeliveredFile.Failure) {
            switch delivery.terminal.outcome {
            case .result(let status, let response):
                self = .response(
                    Response(status: status, response, body: try Self.responseBody(of: response, bytes: bytes)))
            case .failed(let failure):
                guard let response = failure.errorPageResponse else {
                    self = .failed(BusError(failure, errorPage: nil))
                    return
                }
                let page = Response(
                    status: failure.status ?? 0, response, body: try Self.responseBody(of: response, bytes: bytes))
                self = .failed(BusError(failure, errorPage: page))
            }
        } catch {
            switch error {
            case .fileMissing: self = .bodyMissing
            case .cannotOpen(let number): self = .failed(.cannotOpen(number))
            }
        }
    }

    private static func responseBody(
        of response: Terminal.Response, bytes: [UInt8]
    ) throws(DeliveredFile.Failure) -> ResponseBody {
        guard let path = response.bodyFilePath else { return ResponseBody(bytes: bytes) }
        return ResponseBody(
            file: try DeliveredFile(path: path, requiredLength: response.bodyByteCount), length: response.bodyByteCount,
            generation: response.generation)
    }
}

/// Files of bodies, as named by ``DeliveredTerminal`` and by reports of progress.
package enum BodyFile {
    /// Folder of links to the open files of this process, proc(5).
    private static let descriptorFolder = "/proc/self/fd/"
    /// Path of a file that is missing.
    static let missingFilePath = descriptorFolder + "missing"

    /// Returns the path of an open file of this process.
    static func path(ofDescriptor descriptor: Int32) -> String { "\(descriptorFolder)\(descriptor)" }

    /// Returns whether a path names a file that this process received from the broker.
    ///
    /// - Parameter path: path of a body.
    /// - Returns: false for a file of the broker's spool.
    package static func isReceivedFile(_ path: String) -> Bool { path.hasPrefix(descriptorFolder) }

    /// Opens the file of a body for reading, without following links.
    ///
    /// - Parameter path: path of the body.
    /// - Returns: a descriptor that the caller closes; -1 with the reason in `errno`.
    package static func open(_ path: String) -> Int32 {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK
        guard isReceivedFile(path) else { return unsafe Glibc.open(path, flags | O_NOFOLLOW) }
        let opened = unsafe Glibc.open(path, flags)
        guard opened < 0, errno == ENOENT, let number = Int32(path.dropFirst(descriptorFolder.utf8.count)) else {
            return opened
        }
        // Without /proc. A copy of the descriptor shares the offset, which only readers change.
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 0)
        if copy >= 0 { lseek(copy, 0, SEEK_SET) }
        return copy
    }
}

/// File with the bytes of a body that the broker sends. An unnamed one disappears with this object and with the files
/// opened by ``path``.
final class ReceivedFile: Sendable, Equatable {
    /// Folders for files without a preferred folder: files in `/var/tmp` do not occupy memory.
    private static let defaultFolders = ["/var/tmp", "/tmp"]

    private let descriptor: Int32
    /// Reason why the file could not be created: the `errno` value; 0 for a file that exists.
    let creationErrno: Int32

    /// Creates a file.
    ///
    /// - Parameter folder: preferred folder; nil for the folder of temporary files.
    init(preferredFolder folder: String?) {
        var number = ENOENT
        for folder in [folder, Environment.value("TMPDIR")].compactMap(\.self) + Self.defaultFolders {
            if let file = UnnamedFile.openPrivate(in: folder) {
                (descriptor, creationErrno) = (file, 0)
                return
            }
            number = errno
        }
        (descriptor, creationErrno) = (-1, number)
    }

    /// Uses a file of the consumer.
    ///
    /// - Parameter file: its descriptor, which this object closes, or the reason why there is none.
    init(storeFile file: BodyStoreFile) {
        switch file {
        case .open(let descriptor): (self.descriptor, creationErrno) = (descriptor, 0)
        case .unavailable(let number): (descriptor, creationErrno) = (-1, number)
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Path by which this process can open the file, see ``BodyFile``.
    var path: String { BodyFile.path(ofDescriptor: descriptor) }

    /// Writes the first `count` bytes at an offset.
    ///
    /// - Returns: the `errno` value of a failure; 0 without one.
    func write(_ bytes: [UInt8], count: Int, at offset: Int) -> Int32 {
        guard creationErrno == 0 else { return creationErrno }
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
    func bodyBytesStored(_ bytes: Int, of delivery: DeliveredTerminal)
}

/// File of a ``BodyStore``.
package enum BodyStoreFile {
    /// Descriptor of an empty file for reading and writing, which the connection closes.
    case open(Int32)
    /// The file could not be created, or the body is not wanted: the `errno` value.
    case unavailable(Int32)
}
