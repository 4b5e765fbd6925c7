internal import EarshotCore

/// The one source of chance in a run.
struct SeededGenerator: RandomNumberGenerator {
    private var numbers: SplitMix

    init(seed: UInt64) {
        numbers = SplitMix(seed: seed)
    }

    mutating func next() -> UInt64 { numbers.next() }

    /// 0 to `bound` - 1.
    mutating func below(_ bound: Int) -> Int {
        Int(next().multipliedFullWidth(by: UInt64(bound)).high)
    }

    /// True so many times of a thousand.
    mutating func perMille(_ chance: Int) -> Bool { below(1_000) < chance }

    /// A length of time around `mean` nanoseconds, 0 to twice that.
    mutating func around(_ mean: Int64) -> Int64 { Int64(below(Int(mean) * 2 + 1)) }
}
