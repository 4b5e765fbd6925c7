internal import EarshotWire

/// Unique file names derived from URLs, safe in any folder.
///
/// A name is the last segment of the URL's path, percent-decoded if the result is valid text. Separators and invisible,
/// control and direction characters (`TerminalText.isControl`) are replaced by `_`, and leading dots, dashes and spaces
/// are removed. A name has at most 255 bytes: a longer one loses the end of its stem and keeps its extension.
/// `download` stands for an empty name. A repeated name, compared without case, gets a number: `name-2.ext`.
package struct SafeFileNames {
    /// Maximum bytes of a file name, NAME_MAX of Linux.
    static let maximumNameBytes = 255
    /// Maximum bytes of an extension that a shortened name keeps.
    private static let maximumExtensionBytes = 32

    private var usedNames: Set<String> = []
    private var lastSuffixNumbers: [String: Int] = [:]

    package init() {}

    /// Returns a unique name for the file of a URL.
    package mutating func name(for url: String) -> String { uniqueName(SafeFileNames.fileName(ofURL: url)) }

    /// Returns a safe name or relative path, with a number if it was returned before.
    package mutating func uniqueName(_ name: String) -> String {
        if usedNames.insert(name.lowercased()).inserted { return name }
        let last = name.utf8.lastIndex(of: UInt8(ascii: "/")).map { name.utf8.index(after: $0) } ?? name.startIndex
        let file = name[last...]
        let dot = file.utf8.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > last ? $0 : nil } ?? name.endIndex
        var number = lastSuffixNumbers[name.lowercased(), default: 1]
        while true {
            number += 1
            let ending = "-\(number)\(file[dot...])"
            let numbered = name[..<last] + Self.truncatedStem(file[..<dot], leavingRoomFor: ending) + ending
            guard usedNames.insert(numbered.lowercased()).inserted else { continue }
            lastSuffixNumbers[name.lowercased()] = number
            return String(numbered)
        }
    }

    /// Returns the beginning of a stem that leaves room for an ending, without a part of a character.
    private static func truncatedStem(_ stem: Substring, leavingRoomFor ending: some StringProtocol) -> Substring {
        var rest = stem.unicodeScalars
        var count = stem.utf8.count + ending.utf8.count
        while count > maximumNameBytes, let scalar = rest.popLast() { count -= UTF8.width(scalar) }
        return Substring(rest)
    }

    /// Returns a name of at most `maximumNameBytes` bytes with the extension of `name`, also that of a compressed
    /// archive, such as `.tar.gz`.
    private static func shortenedName(_ name: String) -> String {
        guard name.utf8.count > maximumNameBytes else { return name }
        let dot = UInt8(ascii: ".")
        var start = name.utf8.lastIndex(of: dot) ?? name.endIndex
        let stem = name[..<start]
        if let inner = stem.utf8.lastIndex(of: dot), stem[inner...].lowercased() == ".tar" { start = inner }
        if name[start...].utf8.count > maximumExtensionBytes { start = name.endIndex }
        return String(Self.truncatedStem(name[..<start], leavingRoomFor: name[start...]) + name[start...])
    }

    /// Returns the name for the file of a URL, without regard to other files.
    package static func fileName(ofURL url: String) -> String {
        safeLastSegment(ofURL: url) ?? safeSegment(lastPathSegment(ofURL: url))
    }

    /// Returns the path of a URL as a relative path of safe names. `index.html` stands for the name after a slash.
    package static func relativePath(ofURL url: String) -> String {
        let path = pathBytes(ofURL: url)
        let names = path.split(separator: UInt8(ascii: "/")).map { safeSegment(Substring($0)) }
        return (names + (path.last ?? 0x2f == 0x2f ? ["index.html"] : [])).joined(separator: "/")
    }

    /// Returns a safe file name for text without percent-encoding.
    package static func safeName(_ text: String) -> String { safeSegment(decoded: text) }

    /// Returns a relative path of safe names, for text without percent-encoding.
    package static func safePath(_ path: String) -> String {
        let names = path.utf8.split(separator: UInt8(ascii: "/")).map { safeSegment(decoded: String(Substring($0))) }
        return names.isEmpty ? "download" : names.joined(separator: "/")
    }

    /// Returns the text after the last slash of the path.
    private static func lastPathSegment(ofURL url: String) -> Substring {
        var path = pathBytes(ofURL: url)
        while path.last == UInt8(ascii: "/") { path.removeLast() }
        let slash = path.lastIndex(of: UInt8(ascii: "/"))
        return Substring(path[(slash.map { path.index(after: $0) } ?? path.startIndex)...])
    }

    /// Returns the path of a URL, without query and fragment; empty without one.
    private static func pathBytes(ofURL url: String) -> Substring.UTF8View {
        let path = url.utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        guard let authority = authorityStart(in: path) else { return path }
        guard let slash = path[authority...].firstIndex(of: UInt8(ascii: "/")) else { return path[path.endIndex...] }
        return path[slash...]
    }

    /// Returns the index after the first `://`.
    private static func authorityStart(in path: Substring.UTF8View) -> Substring.Index? {
        var rest = path
        while let colon = rest.firstIndex(of: UInt8(ascii: ":")) {
            rest = rest[rest.index(after: colon)...]
            if rest.starts(with: "//".utf8) { return rest.index(rest.startIndex, offsetBy: 2) }
        }
        return nil
    }

    /// Returns the last segment if it needs no change, which is the usual case and ten times as fast as a check of each
    /// character; nil otherwise.
    private static func safeLastSegment(ofURL url: String) -> String? {
        let bytes = url.utf8.span
        var (start, end) = (0, bytes.count)
        scan: for index in bytes.indices {
            switch bytes[index] {
            case UInt8(ascii: "/"): start = index + 1
            case UInt8(ascii: "?"), UInt8(ascii: "#"):
                end = index
                break scan
            case UInt8(ascii: "%"), UInt8(ascii: "\\"): return nil
            case 0x21...0x7e: break
            default: return nil
            }
        }
        // The text after a slash of `://` is a host.
        guard start > 1, bytes[start - 2] != UInt8(ascii: "/"), bytes[start - 2] != UInt8(ascii: ":"),
            (1...maximumNameBytes).contains(end - start), bytes[start] != UInt8(ascii: "."),
            bytes[start] != UInt8(ascii: "-")
        else { return nil }
        return String(url.utf8.prefix(end).dropFirst(start))
    }

    private static func safeSegment(_ segment: Substring) -> String {
        safeSegment(decoded: percentDecoded(segment) ?? String(segment))
    }

    private static func safeSegment(decoded text: String) -> String {
        var name = ""
        for scalar in text.unicodeScalars {
            let replaced = scalar == "/" || scalar == "\\" || TerminalText.isControl(scalar)
            name.unicodeScalars.append(replaced ? "_" : scalar)
        }
        while let first = name.unicodeScalars.first, first == "." || first == "-" || first == " " {
            name.unicodeScalars.removeFirst()
        }
        return name.isEmpty ? "download" : shortenedName(name)
    }

    /// Returns the percent-decoded text; nil if it is not UTF-8.
    package static func percentDecoded(_ segment: some StringProtocol) -> String? {
        String(validating: PercentEncoding.decoded(segment.utf8).bytes, as: UTF8.self)
    }
}
