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
        if let line = firstNamelessHeader(bytes) {
            throw complaint(path, "line \(line): a name must follow the bracket")
        }
        do {
            return try TOMLTable(string: String(decoding: bytes, as: UTF8.self))
        } catch {
            let fault = error as? TOMLParseError
            throw complaint(path, fault.map { "line \($0.source.begin.line): \($0.description)" } ?? "\(error)")
        }
    }

    /// Returns the number of the first line that begins a table header without a name; nil for none. toml++ of TOMLKit
    /// ends the process there with an assertion.
    ///
    /// A value may span lines, and such a line may be part of it. Arrays in arrays are not used in these files.
    static func firstNamelessHeader(_ bytes: [UInt8]) -> Int? {
        let blanks: Set<UInt8> = [UInt8(ascii: " "), UInt8(ascii: "\t")]
        let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]
        var rest = bytes.starts(with: byteOrderMark) ? bytes.dropFirst(byteOrderMark.count) : bytes[...]
        var number = 0
        while !rest.isEmpty {
            number += 1
            let line = rest.prefix { $0 != UInt8(ascii: "\n") }
            rest = rest[line.endIndex...].dropFirst()
            // A lone CR ends no line, but toml++ may go on behind it.
            for part in line.split(separator: UInt8(ascii: "\r")) {
                var name = part.drop { blanks.contains($0) }
                guard name.first == UInt8(ascii: "[") else { continue }
                name = name.dropFirst().drop { blanks.contains($0) }
                if name.first == UInt8(ascii: "[") { name = name.dropFirst().drop { blanks.contains($0) } }
                guard let first = name.first, isNameStart(first) else { return number }
            }
        }
        return nil
    }

    /// Whether toml++ handles this byte after the bracket: that of a name, a quote, or the closing bracket, which is an
    /// error of its own.
    private static func isNameStart(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "\""),
            UInt8(ascii: "'"), UInt8(ascii: "]"):
            true
        default: false
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
