internal import Glibc

/// A list of URLs: one a line, blank lines and those that begin with `#` left out.
enum URLList {
    /// Reads `path` to its end, `-` being standard input.
    ///
    /// - Throws: `Complaint` when it cannot be read.
    static func read(_ path: String) throws(Complaint) -> [String] {
        let descriptor = path == "-" ? STDIN_FILENO : unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path) }
        defer { if descriptor != STDIN_FILENO { close(descriptor) } }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count == 0 { break }
            guard count > 0 else {
                if errno == EINTR { continue }
                throw unreadable(path)
            }
            bytes += buffer[..<count]
        }
        return bytes.split(separator: UInt8(ascii: "\n")).compactMap { line in
            let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            guard let first = line.firstIndex(where: { !isBlank($0) }), line[first] != UInt8(ascii: "#"),
                let last = line.lastIndex(where: { !isBlank($0) })
            else { return nil }
            return String(decoding: line[first...last], as: UTF8.self)
        }
    }

    private static func unreadable(_ path: String) -> Complaint {
        Complaint(.noInput, unsafe "cannot read \(path): \(String(cString: strerror(errno)))")
    }
}
