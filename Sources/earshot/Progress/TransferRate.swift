/// Rate over the last seconds of a run: the slope between the oldest and the newest sample of a window.
struct TransferRate {
    /// Length of the window.
    private static let windowMilliseconds = 5_000
    /// Maximum number of samples: those of the window at the redraw interval, and some more.
    private static let mostSamples = 32

    private struct Sample {
        let milliseconds: Int
        let value: Double
    }

    private var samples: [Sample] = []

    /// Adds the value of a counter. A value below the previous one, as after a restart of a transfer, starts a new window.
    mutating func add(_ value: Double, at milliseconds: Int) {
        if let last = samples.last, value < last.value { samples.removeAll(keepingCapacity: true) }
        samples.append(Sample(milliseconds: milliseconds, value: value))
        let start = milliseconds - Self.windowMilliseconds
        let old = samples.dropLast().prefix { $0.milliseconds < start }.count
        samples.removeFirst(max(old, samples.count - Self.mostSamples))
    }

    /// Increase per second; nil before the second sample.
    var perSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.milliseconds > first.milliseconds else {
            return nil
        }
        return (last.value - first.value) * 1000 / Double(last.milliseconds - first.milliseconds)
    }
}
