internal import EarshotWire

/// Character classes of the URL standard, for the parsers of this folder and of addresses.
extension UInt8 {
    /// A byte permitted in the zone of an address: unreserved characters of RFC 3986, section 2.3.
    var isZoneByte: Bool {
        isLetter || isDigit || self == UInt8(ascii: "-") || self == UInt8(ascii: ".") || self == UInt8(ascii: "_")
            || self == UInt8(ascii: "~")
    }

    /// A byte permitted in user information, RFC 3986, section 3.2.1.
    var isUserinfoByte: Bool {
        if isLetter || isDigit { return true }
        return switch self {
        case UInt8(ascii: "!"), UInt8(ascii: "$")...UInt8(ascii: "."), UInt8(ascii: ":"), UInt8(ascii: ";"),
            UInt8(ascii: "="), UInt8(ascii: "_"), UInt8(ascii: "~"):
            true
        default: false
        }
    }

    /// A byte that needs no escape in a query: not a control, space, DEL or non-ASCII byte, and not in the URL
    /// standard's query percent-encode set. `'` is permitted, as in RFC 3986.
    var isQueryByte: Bool {
        guard self > 0x20, self < 0x7f else { return false }
        return switch self {
        case UInt8(ascii: "\""), UInt8(ascii: "#"), UInt8(ascii: "<"), UInt8(ascii: ">"): false
        default: true
        }
    }

    /// A byte that needs no escape in a path: an `isQueryByte` outside the URL standard's path percent-encode set.
    var isPathByte: Bool {
        guard isQueryByte else { return false }
        return switch self {
        case UInt8(ascii: "?"), UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "{"), UInt8(ascii: "}"): false
        default: true
        }
    }
}

/// Returns whether the bytes of `range` are equal to `name` in any case. `name` is in lower case.
func matchesIgnoringCase(_ bytes: Span<UInt8>, in range: Range<Int>, lowercase name: String) -> Bool {
    let utf8 = name.utf8
    let wanted = utf8.span
    guard range.count == wanted.count else { return false }
    for index in wanted.indices where bytes[range.lowerBound + index].lowercased != wanted[index] { return false }
    return true
}

/// Parses the decimal digits of `range`; nil for empty or other input, or a value above `maximum`.
func parseDecimal(_ bytes: Span<UInt8>, in range: Range<Int>, maximum: Int) -> Int? {
    guard !range.isEmpty else { return nil }
    var value = 0
    for index in range {
        guard bytes[index].isDigit else { return nil }
        let (tenfold, overflow) = value.multipliedReportingOverflow(by: 10)
        let digit = Int(bytes[index] - 0x30)
        guard !overflow, tenfold <= maximum - digit else { return nil }
        value = tenfold + digit
    }
    return value
}

/// Set of ASCII characters as a bit mask, for a membership test by one shift.
struct ByteSet {
    /// Bytes of a normalized path segment: `isPathByte` without `/` and backslash.
    static let pathSegment = ByteSet(lowMask: 0x2fff_7ff2_0000_0000, highMask: 0x57ff_fffe_afff_ffff)
    /// Bytes of a normalized query: `isQueryByte` without backslash.
    static let query = ByteSet(lowMask: 0xafff_fff2_0000_0000, highMask: 0x7fff_ffff_efff_ffff)
    /// Bytes of a normalized label of a host.
    static let host = ByteSet(lowMask: 0x03ff_2000_0000_0000, highMask: 0x07ff_fffe_8000_0000)

    /// Characters below 0x40.
    let lowMask: UInt64
    /// Characters from 0x40 on.
    let highMask: UInt64

    func contains(_ byte: UInt8) -> Bool {
        byte < 0x80 && (byte < 0x40 ? lowMask : highMask) &>> UInt64(byte) & 1 == 1
    }
}
