internal import Glibc
internal import TOML

/// Reading of a TOML file, of settings or keys.
enum TOMLFile {
    /// Maximum size of a file, in bytes. A file with a thousand rules has a tenth of it, one with a thousand keys a fifth.
    private static let mostBytes = 1 << 20

    /// Returns the table of a file; nil if it does not exist.
    ///
    /// - Throws: `CommandError` that names the file, and the line unless the file cannot be read.
    static func table(_ path: String) throws(CommandError) -> TOMLTable? {
        guard let bytes = try bytes(path) else { return nil }
        do {
            return try TOMLReader.table(bytes)
        } catch {
            throw commandError(path, "line \(error.line): \(error.sentence)")
        }
    }

    /// Returns an error of the configuration that names the file.
    static func commandError(_ path: String, _ sentence: String) -> CommandError {
        CommandError(.configuration, "\(path): \(sentence)")
    }

    private static func bytes(_ path: String) throws(CommandError) -> [UInt8]? {
        do {
            return try InputFile.contents(of: path, atMost: mostBytes)
        } catch {
            if case .system(ENOENT) = error { return nil }
            if case .system(ENOTDIR) = error { return nil }
            throw commandError(path, error.description)
        }
    }
}
