extension HTTPLimits {
    /// Maximum length of an entity tag in bytes, including quotation marks. Servers use less than a hundred; each
    /// revalidation sends the tag back.
    public static let entityTagBytes = 1024

    /// Maximum number of names in a `Vary`. Each needs a lookup in the request; ordinary servers name fewer than ten.
    public static let varyNames = 50
}
