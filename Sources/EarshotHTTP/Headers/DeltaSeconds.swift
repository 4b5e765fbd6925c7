/// Seconds as caches count them: RFC 9111, section 1.2.2. Always 0 to `longest`; nothing overflows.
enum DeltaSeconds {
    /// What a greater number, or an overflow on the way, counts as.
    static let longest: Int64 = 1 << 31

    /// The number that `digits` write; nil if there is none or another byte.
    static func parse(_ digits: some Collection<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for byte in digits {
            guard byte.isDigit else { return nil }
            value = min(value * 10 + Int64(byte - 0x30), longest)
        }
        return value
    }

    /// Seconds from one moment to a later one, both since 1970; 0 if it is not later.
    static func between(_ start: Int64, _ end: Int64) -> Int64 {
        guard end > start else { return 0 }
        let (seconds, overflow) = end.subtractingReportingOverflow(start)
        return overflow ? longest : min(seconds, longest)
    }

    /// The sum of two counts.
    static func sum(_ first: Int64, _ second: Int64) -> Int64 { min(first + second, longest) }
}
