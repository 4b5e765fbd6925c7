/// Names for files made of URLs, safe in any folder, and each given once.
///
/// A name is the last segment of the URL's path, its percent signs decoded where that gives text. It has no separators
/// and no invisible, control or direction characters (`TerminalText.isControl`), begins with neither dot nor dash, and is at most 200 bytes long; `download`
/// where nothing is left. A name given before, in any case of letters, is followed by a number: `name-2.ext`.
package struct FileNames {
    /// Leaves room in the 255 bytes of a file's name for a number and a temporary ending.
    static let mostBytes = 200

    private var given: Set<String> = []
    private var lastNumbers: [String: Int] = [:]

    package init() {}

    /// The next file's name.
    package mutating func name(for url: String) -> String {
        let name = FileNames.plainName(of: url) ?? FileNames.safe(FileNames.lastSegment(url))
        if given.insert(name.lowercased()).inserted { return name }
        let dot = name.lastIndex(of: ".").flatMap { $0 > name.startIndex ? $0 : nil } ?? name.endIndex
        var number = lastNumbers[name.lowercased(), default: 1]
        while true {
            number += 1
            let numbered = "\(name[..<dot])-\(number)\(name[dot...])"
            guard given.insert(numbered.lowercased()).inserted else { continue }
            lastNumbers[name.lowercased()] = number
            return numbered
        }
    }

    /// What stands behind the last slash of the path.
    private static func lastSegment(_ url: String) -> Substring {
        var path = url.utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        if let authority = authority(of: path) {
            guard let slash = path[authority...].firstIndex(of: UInt8(ascii: "/")) else { return "" }
            path = path[slash...]
        }
        while path.last == UInt8(ascii: "/") { path.removeLast() }
        let slash = path.lastIndex(of: UInt8(ascii: "/"))
        return Substring(path[(slash.map { path.index(after: $0) } ?? path.startIndex)...])
    }

    /// What is behind the first `://`.
    private static func authority(of path: Substring.UTF8View) -> Substring.Index? {
        var rest = path
        while let colon = rest.firstIndex(of: UInt8(ascii: ":")) {
            rest = rest[rest.index(after: colon)...]
            if rest.starts(with: "//".utf8) { return rest.index(rest.startIndex, offsetBy: 2) }
        }
        return nil
    }

    /// The last segment if it is a name as it is: most are, and to look at each character takes ten times as long.
    /// Nil for what needs another look.
    private static func plainName(of url: String) -> String? {
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
        // Behind one of the two slashes of `://` is a host.
        guard start > 1, bytes[start - 2] != UInt8(ascii: "/"), bytes[start - 2] != UInt8(ascii: ":"),
            (1...mostBytes).contains(end - start), bytes[start] != UInt8(ascii: "."), bytes[start] != UInt8(ascii: "-")
        else { return nil }
        return String(url.utf8.prefix(end).dropFirst(start))
    }

    private static func safe(_ segment: Substring) -> String {
        var name = ""
        for scalar in (decoded(segment) ?? String(segment)).unicodeScalars {
            let replaced = scalar == "/" || scalar == "\\" || TerminalText.isControl(scalar)
            let next = String(replaced ? "_" : Character(scalar))
            guard name.utf8.count + next.utf8.count <= mostBytes else { break }
            name += next
        }
        while let first = name.unicodeScalars.first, first == "." || first == "-" || first == " " {
            name.unicodeScalars.removeFirst()
        }
        return name.isEmpty ? "download" : name
    }

    /// The text that percent signs stand for; nil if it is none.
    private static func decoded(_ segment: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = segment.utf8[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), rest.count >= 2,
                let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
