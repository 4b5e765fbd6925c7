extension HTTPLimits {
    /// Bytes of an entity tag, marks included. Servers use less than a hundred; it goes back to them with each
    /// question.
    public static let entityTagBytes = 1024

    /// Names in a `Vary`. Each is looked up in the request; honest servers name fewer than ten.
    public static let varyNames = 50
}
