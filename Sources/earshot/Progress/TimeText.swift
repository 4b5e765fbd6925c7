/// Time spans as people read them.
enum TimeText {
    /// Remaining time: `0:42`, `1:02:03` or `2d 3h`.
    static func left(_ seconds: Double) -> String {
        let whole = Int(min(max(seconds, 0), 1e9).rounded(.up))
        let (minutes, hours) = (whole / 60 % 60, whole / 3600)
        if hours >= 48 { return "\(hours / 24)d \(hours % 24)h" }
        return hours > 0 ? "\(hours):\(pair(minutes)):\(pair(whole % 60))" : "\(minutes):\(pair(whole % 60))"
    }

    /// Elapsed time: `1.2 s`, or as ``left(_:)`` from one minute.
    static func elapsed(_ seconds: Double) -> String {
        guard seconds < 60 else { return left(seconds.rounded(.down)) }
        let tenths = Int(max(seconds, 0) * 10)
        return "\(tenths / 10).\(tenths % 10) s"
    }

    private static func pair(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
}
