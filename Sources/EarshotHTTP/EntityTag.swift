/// An entity tag: RFC 9110, section 8.8.3.
///
/// There is no `==` on purpose: two tags are compared strongly or weakly, as section 8.8.3.2 tells them apart.
public struct EntityTag: Sendable {
    /// Whether the tag stands for what is equivalent, and not for what is the same byte by byte.
    public let isWeak: Bool

    /// What is between the quotation marks; need not be UTF-8.
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
        // etagc: no escapes, no blanks.
        guard opaque.allSatisfy({ $0 > 0x20 && $0 != UInt8(ascii: "\"") && $0 != 0x7f }) else { return nil }
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
