internal import EarshotCore

/// The only source of randomness in a run, so that its seed determines everything.
struct SeededGenerator: RandomNumberGenerator {
    private var numbers: SplitMix

    init(seed: UInt64) {
        numbers = SplitMix(seed: seed)
    }

    mutating func next() -> UInt64 { numbers.next() }

    /// Returns a number from 0 to `bound` - 1.
    mutating func below(_ bound: Int) -> Int {
        Int(next().multipliedFullWidth(by: UInt64(bound)).high)
    }

    /// Returns true with a probability of `chance` per mille.
    mutating func perMille(_ chance: Int) -> Bool { below(1_000) < chance }

    /// Returns a random duration with the mean `mean` in nanoseconds, 0 to twice that.
    mutating func around(_ mean: Int64) -> Int64 { Int64(below(Int(mean) * 2 + 1)) }
}
