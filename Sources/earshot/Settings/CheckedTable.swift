internal import Glibc
internal import TOML

/// Table of a TOML file with known keys and values of bounded size. Each error names the file and the key.
struct CheckedTable {
    /// Maximum length of a value in bytes, and maximum number of values in a list.
    private static let limits = (bytes: 4_096, values: 64)

    private let table: TOMLTable
    private let path: String
    /// Prefix of the keys in messages: the name of the table and a dot, or empty for the top level.
    private let keyPrefix: String

    /// - Parameters:
    ///   - name: name of the table; empty for the top level of the file.
    ///   - known: all keys that the table may have.
    /// - Throws: `CommandError` for another key.
    init(_ table: TOMLTable, _ name: String = "", of path: String, known: [String]) throws(CommandError) {
        self.table = table
        self.path = path
        keyPrefix = name.isEmpty ? "" : name + "."
        for key in table.keys where !known.contains(key) {
            throw commandError(key, "unknown key; use \(known.joined(separator: ", "))")
        }
    }

    /// Returns the text of a key; nil for a missing key.
    ///
    /// - Parameter form: description of the possible values, which follows `must be`.
    func text(_ key: String, _ form: String, where isValid: (String) -> Bool) throws(CommandError) -> String? {
        guard let value = table[key] else { return nil }
        guard let text = value.string, (1...Self.limits.bytes).contains(text.utf8.count), isValid(text) else {
            throw commandError(key, "must be \(form)")
        }
        return text
    }

    /// Returns the texts of a list; nil for a missing key.
    func list(_ key: String, _ form: String, where isValid: (String) -> Bool) throws(CommandError) -> [String]? {
        guard let value = table[key] else { return nil }
        let texts = value.array.map { array in array.map { $0.string ?? "" } } ?? []
        guard (1...Self.limits.values).contains(texts.count), texts.allSatisfy(isValid) else {
            throw commandError(key, "must be a list of \(form)")
        }
        return texts
    }

    /// Returns the number of a key; nil for a missing key.
    func number(_ key: String, in range: ClosedRange<Int>) throws(CommandError) -> Int? {
        guard let value = table[key] else { return nil }
        guard let number = value.int, range.contains(number) else {
            throw commandError(key, "must be a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// Returns the table of a key.
    ///
    /// - Throws: `CommandError` for a missing table.
    func subtable(_ key: String, known: [String]) throws(CommandError) -> CheckedTable {
        guard let inner = table[key]?.table else { throw commandError(key, "is missing; add the table [\(key)]") }
        return try CheckedTable(inner, key, of: path, known: known)
    }

    /// Returns an error about a key.
    func commandError(_ key: String, _ sentence: String) -> CommandError {
        TOMLFile.commandError(path, "\(keyPrefix)\(key): \(sentence)")
    }
}

/// Reading of a TOML file, of settings or keys.
enum TOMLFile {
    /// Maximum size of a file, in bytes. A file with a thousand rules has a tenth of it, and one with a thousand keys a
    /// fifth.
    private static let maximumFileBytes = 1 << 20

    /// Returns the table of a file; nil if it does not exist.
    ///
    /// - Throws: `CommandError` that names the file, and the line unless the file cannot be read.
    static func table(_ path: String) throws(CommandError) -> TOMLTable? {
        guard let bytes = try readBytes(path) else { return nil }
        do {
            return try TOMLReader.parse(bytes)
        } catch {
            throw commandError(path, "line \(error.line): \(error.message)")
        }
    }

    /// Returns an error of the configuration that names the file.
    static func commandError(_ path: String, _ sentence: String) -> CommandError {
        CommandError(.configurationError, "\(path): \(sentence)")
    }

    private static func readBytes(_ path: String) throws(CommandError) -> [UInt8]? {
        do {
            return try InputFile.contents(of: path, atMost: maximumFileBytes)
        } catch {
            if case .systemError(ENOENT) = error { return nil }
            if case .systemError(ENOTDIR) = error { return nil }
            throw commandError(path, error.description)
        }
    }
}
