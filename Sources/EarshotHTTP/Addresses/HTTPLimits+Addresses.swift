extension HTTPLimits {
    /// Maximum number of rules in the text of an `AddressPolicy`. Every connection checks all of them, which takes some
    /// microseconds at this limit.
    public static let addressRules = 1000
}
