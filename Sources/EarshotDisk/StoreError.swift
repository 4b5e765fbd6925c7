public import EarshotLoop

/// Why what is kept on the disk cannot be used; a sentence that says what to do.
public struct StoreError: Error, CustomStringConvertible {
    /// Kinds of reasons, by who can do something about them.
    public enum Kind: Equatable, Sendable {
        /// Another process has it.
        case taken
        /// Another user could have prepared or could change it.
        case distrusted
        /// It is of a newer version, or not this program's.
        case foreign
        case other
    }

    public let description: String
    public let kind: Kind

    public init(_ description: String, _ kind: Kind = .other) {
        self.description = description
        self.kind = kind
    }

    /// A folder that cannot be used.
    public init(_ error: FolderError) {
        self.init(error.description, error.isDistrust ? .distrusted : .other)
    }
}
