/// The one source of chance in a run. SplitMix64 (Steele, Lea and Flood, 2014).
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
        return value ^ value >> 31
    }

    /// 0 to `bound` - 1.
    mutating func below(_ bound: Int) -> Int {
        Int(next().multipliedFullWidth(by: UInt64(bound)).high)
    }

    /// True so many times of a thousand.
    mutating func perMille(_ chance: Int) -> Bool { below(1_000) < chance }

    /// A length of time around `mean` nanoseconds, 0 to twice that.
    mutating func around(_ mean: Int64) -> Int64 { Int64(below(Int(mean) * 2 + 1)) }
}
