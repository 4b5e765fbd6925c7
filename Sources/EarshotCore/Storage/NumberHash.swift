/// Hashes of keys that consist of a few record numbers, for a `HandleTable`. They take two multiplications, where
/// `Hasher` takes a hundred instructions and more.
///
/// Peers influence which record numbers exist, and so which keys occur. Two random words per process prevent peers from
/// constructing collisions.
enum NumberHash {
    private static let secret = (word(1), word(2))

    /// Returns a random word: `Hasher` is seeded per process.
    private static func word(_ number: Int) -> UInt64 { UInt64(truncatingIfNeeded: number.hashValue) }

    static func of(_ first: Int32, _ second: Int32, _ third: Int32 = 0, _ fourth: Int32 = 0) -> UInt32 {
        of(pair(first, second), pair(third, fourth))
    }

    static func of(_ first: UInt64, _ second: UInt64 = 0) -> UInt32 {
        // Consecutive numbers yield multiples of one of the words. Without the second product they would cluster in few
        // places of a table, in one process of a hundred.
        UInt32(truncatingIfNeeded: folded(folded(first ^ secret.0, second ^ secret.1), 0x9e37_79b9_7f4a_7c15))
    }

    private static func folded(_ first: UInt64, _ second: UInt64) -> UInt64 {
        let product = first.multipliedFullWidth(by: second)
        return product.high ^ product.low
    }

    private static func pair(_ high: Int32, _ low: Int32) -> UInt64 {
        UInt64(UInt32(bitPattern: high)) << 32 | UInt64(UInt32(bitPattern: low))
    }
}
