public import EarshotLoop

/// Reason why stored data cannot be used, as a message with the remedy.
public struct StoreError: Error, CustomStringConvertible {
    /// Kinds of reasons, by their remedy.
    public enum Kind: Equatable, Sendable {
        /// Another process holds the lock.
        case taken
        /// Another user could have prepared or could change it.
        case distrusted
        /// It belongs to a newer version or another program.
        case foreign
        case other
    }

    public let description: String
    public let kind: Kind

    public init(_ description: String, _ kind: Kind = .other) {
        self.description = description
        self.kind = kind
    }

    /// Creates an error for an unusable folder.
    public init(_ error: FolderError) {
        self.init(error.description, error.isDistrust ? .distrusted : .other)
    }
}
