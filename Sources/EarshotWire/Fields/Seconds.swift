/// Times as people write them, `30` or `0.25`, and as they are kept: in milliseconds.
public enum Seconds {
    /// Reads a number of seconds.
    ///
    /// - Parameter limit: the largest number.
    /// - Returns: nil for other text, a larger number, or more than three digits after the point.
    public static func milliseconds(_ text: String, atMost limit: Int = WireLimits.seconds) -> Int? {
        let fraction = text.utf8.firstIndex(of: Ascii.dot).map { text.utf8[$0...].dropFirst() }
        guard fraction?.count ?? 0 <= 3 else { return nil }
        return Decimal.milliseconds(text.utf8, atMost: limit)
    }

    /// The shortest text for so many milliseconds, which are not below 0.
    public static func text(_ milliseconds: Int) -> String { Decimal.seconds(milliseconds) }
}
