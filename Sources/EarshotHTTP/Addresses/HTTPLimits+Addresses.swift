extension HTTPLimits {
    /// Rules in a text of an `AddressPolicy`: all are looked at for each connection, some microseconds for this many.
    public static let addressRules = 1000
}
