internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Reader of a complete file or of standard input.
enum InputFile {
    /// U+FEFF in UTF-8, with which some programs begin a text.
    static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// Reason why no bytes were read.
    enum Fault: Error {
        /// An error number, errno(3).
        case systemError(Int32)
        /// More bytes than this limit.
        case exceedsLimit(Int)

        /// Cause without the name of the file.
        var description: String {
            switch self {
            case .systemError(let code): unsafe String(cString: strerror(code))
            case .exceedsLimit(let most): "larger than the maximum of \(most) bytes"
            }
        }
    }

    /// Returns the bytes of `path`, or of standard input for `-`.
    ///
    /// - Parameter most: maximum length in bytes; nil for no limit.
    /// - Throws: `CommandError` if the file cannot be read or is longer.
    static func read(_ path: String, atMost most: Int? = nil) throws(CommandError) -> [UInt8] {
        do {
            return try path == "-" ? readBytes(from: STDIN_FILENO, limit: most) : contents(of: path, atMost: most)
        } catch {
            let name = path == "-" ? "standard input" : path
            throw CommandError(.noInput, "cannot read \(name): \(error.description)")
        }
    }

    /// Returns the bytes of a text without its byte order mark.
    static func withoutByteOrderMark(_ text: [UInt8]) -> [UInt8] {
        text.starts(with: byteOrderMark) ? Array(text.dropFirst(byteOrderMark.count)) : text
    }

    /// Returns the bytes of the file at `path`.
    static func contents(of path: String, atMost most: Int?) throws(Fault) -> [UInt8] {
        let descriptor = unsafe open(ByteText.cString(path), O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw .systemError(errno) }
        defer { close(descriptor) }
        return try readBytes(from: descriptor, limit: most)
    }

    private static func readBytes(from descriptor: Int32, limit most: Int?) throws(Fault) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { return bytes }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw .systemError(errno)
            }
            bytes += buffer[..<count]
            if let most, bytes.count > most { throw .exceedsLimit(most) }
        }
    }
}

/// Check of paths from the command line, for each group of options that has one: an empty path is an error.
enum PathCheck {
    /// - Parameter paths: names of options, each with its path; nil for an option that was not given.
    /// - Throws: `ValidationError` for an empty path, such as that of an unset variable.
    static func check(_ paths: [(String, String?)]) throws {
        for (option, path) in paths where path?.isEmpty == true {
            throw ValidationError("\(option): the path is empty; give a path, or omit the option")
        }
    }
}

/// Relative paths from users and lists.
enum RelativePath {
    /// Whether a path stays below its base: not empty, not absolute, and without `..`.
    static func isInside(_ path: String) -> Bool {
        !path.isEmpty && path.utf8.first != UInt8(ascii: "/")
            && !path.utf8.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual("..".utf8) }
    }
}

/// Check of a certificate or key file named by an option.
enum TrustFile {
    /// - Parameter option: name of the option, for the error.
    /// - Throws: `ValidationError` if a message cannot hold the path, or this process cannot read the file.
    static func check(_ path: String, _ option: String) throws {
        if let fault = pathFault(path) { throw ValidationError("\(option): \(fault)") }
    }

    /// Returns the reason why a message cannot hold the path, or this process cannot read the file; nil for neither.
    static func pathFault(_ path: String) -> String? {
        guard Folder.isWritable(path) else { return "the path must be UTF-8 without control characters" }
        var status = stat()
        guard unsafe access(path, R_OK) == 0, unsafe stat(path, &status) == 0 else {
            return unsafe "cannot read \(path): \(String(cString: strerror(errno)))"
        }
        return status.st_mode & S_IFMT == S_IFDIR ? "\(path) is a directory; give a PEM file" : nil
    }
}
