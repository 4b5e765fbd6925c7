internal import Glibc
internal import TOMLKit

/// Reading of a TOML file. Files of settings and of keys use TOMLKit, and nothing else does.
enum TOMLFile {
    /// Maximum size of a file, in bytes. A file with a thousand rules has a tenth of it, one with a thousand keys a fifth.
    private static let mostBytes = 1 << 20

    /// Returns the table of a file; nil if it does not exist.
    ///
    /// - Throws: `Complaint` that names the file.
    static func table(_ path: String) throws(Complaint) -> TOMLTable? {
        guard let bytes = try bytes(path) else { return nil }
        // TOMLKit stops at the first zero byte.
        guard !bytes.contains(0) else { throw complaint(path, "the file contains a zero byte") }
        do {
            return try TOMLTable(string: String(decoding: bytes, as: UTF8.self))
        } catch {
            let fault = error as? TOMLParseError
            throw complaint(path, fault.map { "line \($0.source.begin.line): \($0.description)" } ?? "\(error)")
        }
    }

    /// Returns an error of the configuration that names the file.
    static func complaint(_ path: String, _ sentence: String) -> Complaint {
        Complaint(.configuration, "\(path): \(sentence)")
    }

    private static func bytes(_ path: String) throws(Complaint) -> [UInt8]? {
        do {
            return try InputFile.contents(of: path, atMost: mostBytes)
        } catch {
            if case .system(ENOENT) = error { return nil }
            if case .system(ENOTDIR) = error { return nil }
            throw complaint(path, error.description)
        }
    }
}
