internal import EarshotLoop
internal import Glibc

/// Reader of a complete file or of standard input.
enum InputFile {
    /// U+FEFF in UTF-8, with which some programs begin a text.
    static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// Reason why no bytes were read.
    enum Fault: Error {
        /// An error number, errno(3).
        case system(Int32)
        /// More bytes than this limit.
        case longer(Int)

        /// Cause without the name of the file.
        var description: String {
            switch self {
            case .system(let code): unsafe String(cString: strerror(code))
            case .longer(let most): "larger than the maximum of \(most) bytes"
            }
        }
    }

    /// Returns the bytes of `path`, or of standard input for `-`.
    ///
    /// - Parameter most: maximum length in bytes; nil for no limit.
    /// - Throws: `CommandError` if the file cannot be read or is longer.
    static func read(_ path: String, atMost most: Int? = nil) throws(CommandError) -> [UInt8] {
        do {
            return try path == "-" ? bytes(STDIN_FILENO, most) : contents(of: path, atMost: most)
        } catch {
            let name = path == "-" ? "standard input" : path
            throw CommandError(.noInput, "cannot read \(name): \(error.description)")
        }
    }

    /// Returns the bytes of a text without its byte order mark.
    static func withoutMark(_ text: [UInt8]) -> [UInt8] {
        text.starts(with: byteOrderMark) ? Array(text.dropFirst(byteOrderMark.count)) : text
    }

    /// Returns the bytes of the file at `path`.
    static func contents(of path: String, atMost most: Int?) throws(Fault) -> [UInt8] {
        let descriptor = unsafe open(ByteText.path(path), O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw .system(errno) }
        defer { close(descriptor) }
        return try bytes(descriptor, most)
    }

    private static func bytes(_ descriptor: Int32, _ most: Int?) throws(Fault) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { return bytes }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw .system(errno)
            }
            bytes += buffer[..<count]
            if let most, bytes.count > most { throw .longer(most) }
        }
    }
}
