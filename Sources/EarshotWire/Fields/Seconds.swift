/// Conversion between times in seconds, such as `30` or `0.25`, and milliseconds.
public enum Seconds {
    /// Parses a number of seconds.
    ///
    /// - Parameter limit: Maximum number of seconds.
    /// - Returns: Milliseconds; nil for other text, a larger number, or more than three decimal places.
    public static func parseMilliseconds(_ text: String, atMost limit: Int = WireLimits.durationSeconds) -> Int? {
        let fraction = text.utf8.firstIndex(of: Ascii.dot).map { text.utf8[$0...].dropFirst() }
        guard fraction?.count ?? 0 <= 3 else { return nil }
        return Decimal.parseMilliseconds(text.utf8, atMost: limit)
    }

    /// Returns the shortest text for a number of milliseconds of at least 0.
    public static func text(milliseconds: Int) -> String { Decimal.secondsText(milliseconds: milliseconds) }
}
