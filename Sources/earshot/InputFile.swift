internal import Glibc

/// A file, or standard input, read to its end.
enum InputFile {
    /// The bytes of `path`, `-` being standard input.
    ///
    /// - Parameter most: bytes that are not too many; nil for any number.
    /// - Throws: `Complaint` when it cannot be read or is longer.
    static func read(_ path: String, atMost most: Int? = nil) throws(Complaint) -> [UInt8] {
        let descriptor = path == "-" ? STDIN_FILENO : unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path) }
        defer { if descriptor != STDIN_FILENO { close(descriptor) } }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { return bytes }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw unreadable(path)
            }
            bytes += buffer[..<count]
            if let most, bytes.count > most { throw Complaint(.noInput, "\(path) is longer than \(most) bytes") }
        }
    }

    private static func unreadable(_ path: String) -> Complaint {
        Complaint(.noInput, unsafe "cannot read \(path): \(String(cString: strerror(errno)))")
    }
}
