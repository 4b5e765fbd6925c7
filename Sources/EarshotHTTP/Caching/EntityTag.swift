/// Entity tag: RFC 9110, section 8.8.3.
///
/// Deliberately not `Equatable`: section 8.8.3.2 defines a strong and a weak comparison.
public struct EntityTag: Sendable {
    /// Whether equal tags mean equivalent rather than identical representations.
    public let isWeak: Bool

    /// Whether the tag was sent with quotation marks.
    let isQuoted: Bool

    /// Text between the quotation marks; need not be UTF-8.
    private let opaqueTag: ArraySlice<UInt8>

    /// Parses the value of an `ETag` field; nil for other text and for more than `HTTPLimits.entityTagBytes`.
    public init?(_ text: String) {
        self.init(bytes: Array(text.utf8)[...])
    }

    /// Implements `init(_:)` for bytes.
    init?(bytes: ArraySlice<UInt8>) {
        guard bytes.count <= HTTPLimits.entityTagBytes else { return nil }
        isWeak = bytes.starts(with: "W/".utf8)
        let quoted = isWeak ? bytes.dropFirst(2) : bytes
        guard quoted.count >= 2, quoted.first == UInt8(ascii: "\""), quoted.last == UInt8(ascii: "\"") else {
            return nil
        }
        opaqueTag = quoted.dropFirst().dropLast()
        isQuoted = true
        guard opaqueTag.allSatisfy(Self.isTagByte) else { return nil }
    }

    /// Parses a tag that a server sent without quotation marks; nil for other text. Conditional requests send it with
    /// marks, as browsers do. It never counts as strong for resuming a body.
    init?(unquoted bytes: ArraySlice<UInt8>) {
        guard !bytes.isEmpty, bytes.count <= HTTPLimits.entityTagBytes - 2, !bytes.starts(with: "W/".utf8),
            !bytes.starts(with: "w/".utf8), bytes.allSatisfy(Self.isTagByte)
        else { return nil }
        isWeak = false
        isQuoted = false
        opaqueTag = bytes
    }

    /// Matches the grammar's `etagc`: neither escapes nor blanks.
    private static func isTagByte(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte != UInt8(ascii: "\"") && byte != 0x7f
    }

    /// Returns whether both tags identify the same bytes.
    public func isStronglyEqual(to other: EntityTag) -> Bool {
        !isWeak && !other.isWeak && opaqueTag == other.opaqueTag
    }

    /// Returns whether both tags identify equivalent representations.
    public func isWeaklyEqual(to other: EntityTag) -> Bool { opaqueTag == other.opaqueTag }

    /// Tag as written in a field.
    var bytes: [UInt8] {
        Array(isWeak ? "W/\"".utf8 : "\"".utf8) + opaqueTag + [UInt8(ascii: "\"")]
    }
}
