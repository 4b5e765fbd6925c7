internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// Certificate and key files named by requests.
///
/// The worker reads them itself, because libcurl would block on a FIFO without a writer, and with it all transfers.
enum CertificateFile {
    /// Returns the content of a regular file of at most `Limits.certificateBytes`.
    ///
    /// - Parameter field: Name of the request's field, for the error.
    /// - Throws: A refusal with the code `tls`.
    static func read(_ path: String, _ field: StaticString) throws(Refusal) -> [UInt8] {
        let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { throw refusal(field, errno) }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw refusal(field, errno) }
        guard status.st_mode & S_IFMT == S_IFREG else { throw Refusal(.tls, "The \(field) is not a regular file.") }
        guard status.st_size > 0, status.st_size <= Limits.certificateBytes else {
            throw Refusal(.tls, "The \(field) is empty or longer than \(Limits.certificateBytes) bytes.")
        }
        var bytes = [UInt8](repeating: 0, count: status.st_size)
        var count = 0
        while count < bytes.count {
            let read = unsafe bytes.withUnsafeMutableBytes { place in
                unsafe Glibc.read(descriptor, place.baseAddress?.advanced(by: count), place.count - count)
            }
            guard read >= 0 || errno == EINTR else { throw refusal(field, errno) }
            // The file was truncated after `fstat`.
            guard read != 0 else { break }
            count += max(read, 0)
        }
        return Array(bytes[..<count])
    }

    private static func refusal(_ field: StaticString, _ number: Int32) -> Refusal {
        Refusal(.tls, "Cannot read the \(SystemError("\(field)", number: number)).")
    }
}
