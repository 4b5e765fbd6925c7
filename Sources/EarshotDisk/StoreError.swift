/// Why what is kept on the disk cannot be used; a sentence that says what to do.
public struct StoreError: Error, CustomStringConvertible {
    public let description: String
    /// Whether another process has it.
    public let isTaken: Bool

    public init(_ description: String, isTaken: Bool = false) {
        self.description = description
        self.isTaken = isTaken
    }
}
