extension HTTPLimits {
    /// Bytes of an entity tag, marks included. Servers use less than a hundred; it goes back to them with each
    /// question.
    public static let entityTagBytes = 1024
}
