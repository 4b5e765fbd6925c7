/// Time spans as people read them, for progress, lists of requests and `earshot top`.
enum TimeText {
    /// Remaining time: `0:42`, `1:02:03` or `2d 3h`.
    static func remaining(_ seconds: Double) -> String {
        let whole = Int(min(max(seconds, 0), 1e9).rounded(.up))
        let (minutes, hours) = (whole / 60 % 60, whole / 3600)
        if hours >= 48 { return "\(hours / 24)d \(hours % 24)h" }
        return hours > 0 ? "\(hours):\(pair(minutes)):\(pair(whole % 60))" : "\(minutes):\(pair(whole % 60))"
    }

    /// Elapsed time: `1.2 s`, or as ``remaining(_:)`` from one minute.
    static func elapsed(_ seconds: Double) -> String {
        guard seconds < 60 else { return remaining(seconds.rounded(.down)) }
        let tenths = Int(max(seconds, 0) * 10)
        return "\(tenths / 10).\(tenths % 10) s"
    }

    /// Age in its largest whole unit: `250ms`, `12s`, `3m`, `5h`, `2d`.
    static func age(milliseconds: Int) -> String {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        for (size, unit) in units where milliseconds >= size { return "\(milliseconds / size)\(unit)" }
        return "\(max(0, milliseconds))ms"
    }

    private static func pair(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
}
