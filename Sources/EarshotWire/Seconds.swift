/// Times as people write them, `30` or `0.25`, and as they are kept: in milliseconds.
public enum Seconds {
    /// What `text` says; digits past the third after the point are dropped.
    ///
    /// - Parameter limit: the most seconds that it may say.
    /// - Returns: nil for what is no such number, or more than `limit`.
    public static func milliseconds(_ text: String, atMost limit: Int = WireLimits.seconds) -> Int? {
        Decimal.milliseconds(text.utf8, atMost: limit)
    }

    /// The shortest text for so many milliseconds, which are not below 0.
    public static func text(_ milliseconds: Int) -> String { Decimal.seconds(milliseconds) }
}
