internal import EarshotLoop
internal import EarshotWire

/// Option of one URL in a list: an indented line `name=value` below the URL, as in the lists of aria2.
enum EntryOption: Equatable {
    /// Path of the file below the output directory.
    case out(String)
    /// Directory of the file, below the output directory.
    case dir(String)
    /// Header field, `NAME: VALUE`.
    case header(String)
    /// SHA-256 of the body, 64 lower-case hexadecimal digits.
    case checksum(String)
    /// Reason why the line is no valid option.
    case invalid(String)

    /// Parses an indented line without its indent; nil for a line of another form, such as a URL.
    init?(line: ArraySlice<UInt8>) {
        guard let equals = line.firstIndex(of: UInt8(ascii: "=")), equals > line.startIndex,
            line[..<equals].allSatisfy({ $0.isLowercase || $0.isDigit || $0 == 0x2d })
        else { return nil }
        let name = ByteText.text(of: Array(line[..<equals]))
        let value = ByteText.text(of: Array(line[(equals + 1)...]))
        switch name {
        case "out": self = RelativePath.isInside(value) ? .out(value) : Self.outside(name)
        case "dir": self = RelativePath.isInside(value) ? .dir(value) : Self.outside(name)
        case "header":
            self = HTTPOptions.isField(value) ? .header(value) : .invalid("header: give 'NAME: VALUE'")
        case "checksum":
            self =
                Checksum(argument: value).map { .checksum($0.hex) }
                ?? .invalid("checksum: give sha-256= and 64 hexadecimal digits")
        default: self = .invalid("unknown option '\(name)'; the options of a list are out, dir, header and checksum")
        }
    }

    /// The line for a list, without indent; nil for an invalid option.
    var line: String? {
        switch self {
        case .out(let path): "out=\(path)"
        case .dir(let path): "dir=\(path)"
        case .header(let field): "header=\(field)"
        case .checksum(let digest): "checksum=sha-256=\(digest)"
        case .invalid: nil
        }
    }

    private static func outside(_ name: String) -> EntryOption {
        .invalid("\(name): give a relative path without '..'")
    }
}
