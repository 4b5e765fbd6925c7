internal import EarshotWire

/// Arithmetic on delta-seconds: RFC 9111, section 1.2.2. Results are saturated at 0 and `longest`.
enum DeltaSeconds {
    /// Substitute for larger numbers and overflows.
    static let longest: Int64 = 1 << 31

    /// Parses decimal digits; nil for empty or other input.
    static func parse(_ digits: some Collection<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for byte in digits {
            guard byte.isDigit else { return nil }
            value = min(value * 10 + Int64(byte - 0x30), longest)
        }
        return value
    }

    /// Returns the seconds from `start` to `end`, both since 1970; 0 if `end` is not later.
    static func between(_ start: Int64, _ end: Int64) -> Int64 {
        guard end > start else { return 0 }
        let (seconds, overflow) = end.subtractingReportingOverflow(start)
        return overflow ? longest : min(seconds, longest)
    }

    /// Returns the sum of two durations.
    static func sum(_ first: Int64, _ second: Int64) -> Int64 { min(first + second, longest) }
}
