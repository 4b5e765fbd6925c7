/// Identity of a body's bytes, stable across restarts of the broker. A body that starts over gets a new generation, a
/// resumed one keeps it.
public struct Generation: Hashable, Sendable, CustomStringConvertible {
    /// Text on the wire, 1 to 64 visible bytes.
    public let description: String

    /// Nil if `text` is not a generation.
    public init?(_ text: String) {
        guard Ascii.isIdentifier(text.utf8) else { return nil }
        description = text
    }

    /// The generation of the body that this attempt starts.
    public init(_ attempt: AttemptID) {
        description = attempt.description
    }
}

extension HeadReader {
    static func generation(_ text: HeadText) throws(WireError) -> Generation {
        guard let generation = Generation(text.string) else {
            throw WireError(.badMessage, "generation must be 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return generation
    }
}
