/// Why a cache cannot be used; a sentence that says what to do.
public struct CacheError: Error, CustomStringConvertible {
    public let description: String
    /// Whether another process has it.
    public let isTaken: Bool

    init(_ description: String, isTaken: Bool = false) {
        self.description = description
        self.isTaken = isTaken
    }
}
