/// An entity tag: RFC 9110, section 8.8.3.
///
/// There is no `==` on purpose: two tags are compared strongly or weakly, as section 8.8.3.2 tells them apart.
public struct EntityTag: Sendable {
    /// Whether the tag stands for what is equivalent, and not for what is the same byte by byte.
    public let isWeak: Bool

    /// Whether the tag was written with quotation marks.
    let isQuoted: Bool

    /// The text between the quotation marks; need not be UTF-8.
    private let opaque: ArraySlice<UInt8>

    /// Reads the value of an `ETag` field; nil for other text and for more than `HTTPLimits.entityTagBytes`.
    public init?(_ text: String) {
        self.init(bytes: Array(text.utf8)[...])
    }

    /// `init(_:)` on bytes.
    init?(bytes: ArraySlice<UInt8>) {
        guard bytes.count <= HTTPLimits.entityTagBytes else { return nil }
        isWeak = bytes.starts(with: "W/".utf8)
        let quoted = isWeak ? bytes.dropFirst(2) : bytes
        guard quoted.count >= 2, quoted.first == UInt8(ascii: "\""), quoted.last == UInt8(ascii: "\"") else {
            return nil
        }
        opaque = quoted.dropFirst().dropLast()
        isQuoted = true
        guard opaque.allSatisfy(Self.isTagByte) else { return nil }
    }

    /// Reads a tag that some servers write without quotation marks; nil for other text. Conditions name it with marks,
    /// as browsers do. It is never strong enough to continue a body.
    init?(unquoted bytes: ArraySlice<UInt8>) {
        guard !bytes.isEmpty, bytes.count <= HTTPLimits.entityTagBytes - 2, !bytes.starts(with: "W/".utf8),
            !bytes.starts(with: "w/".utf8), bytes.allSatisfy(Self.isTagByte)
        else { return nil }
        isWeak = false
        isQuoted = false
        opaque = bytes
    }

    /// etagc: no escapes, no blanks.
    private static func isTagByte(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte != UInt8(ascii: "\"") && byte != 0x7f
    }

    /// Whether both stand for the same bytes.
    public func isStronglyEqual(to other: EntityTag) -> Bool {
        !isWeak && !other.isWeak && opaque == other.opaque
    }

    /// Whether both stand for equivalent representations.
    public func isWeaklyEqual(to other: EntityTag) -> Bool { opaque == other.opaque }

    /// The tag as it is written in a field.
    var bytes: [UInt8] {
        Array(isWeak ? "W/\"".utf8 : "\"".utf8) + opaque + [UInt8(ascii: "\"")]
    }
}
