/// Names the bytes of one attempt that began a body, and of those that went on with it, over brokers' lives.
public struct Generation: Hashable, Sendable, CustomStringConvertible {
    /// The text that stands for it; 1 to 64 visible bytes.
    public let description: String

    /// Nil for other text.
    public init?(_ text: String) {
        guard Ascii.isIdentifier(text.utf8) else { return nil }
        description = text
    }

    /// That of what this attempt begins.
    public init(_ attempt: AttemptID) {
        description = attempt.description
    }
}

extension HeadReader {
    static func generation(_ text: HeadText) throws(WireError) -> Generation {
        guard let generation = Generation(text.string) else {
            throw WireError(.badMessage, "generation is 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return generation
    }
}
