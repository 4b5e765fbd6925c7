/// Hashes of keys that are a few record numbers, for a `NumberTable`: two multiplications, where `Hasher` takes a
/// hundred instructions and more.
///
/// Peers sway which records there are, and so which numbers meet in a key. Two random words that only this process has
/// keep them from telling which keys collide.
enum NumberHash {
    private static let secret = (word(1), word(2))

    /// `Hasher` has the process's own seed.
    private static func word(_ number: Int) -> UInt64 { UInt64(truncatingIfNeeded: number.hashValue) }

    static func of(_ first: Int32, _ second: Int32, _ third: Int32 = 0, _ fourth: Int32 = 0) -> UInt32 {
        of(pair(first, second), pair(third, fourth))
    }

    static func of(_ first: UInt64, _ second: UInt64 = 0) -> UInt32 {
        // Numbers in a row make multiples of one of the words: without the second product they would meet in few places
        // of a table, with one process in a hundred.
        UInt32(truncatingIfNeeded: folded(folded(first ^ secret.0, second ^ secret.1), 0x9e37_79b9_7f4a_7c15))
    }

    @inline(__always)
    private static func folded(_ first: UInt64, _ second: UInt64) -> UInt64 {
        let product = first.multipliedFullWidth(by: second)
        return product.high ^ product.low
    }

    private static func pair(_ high: Int32, _ low: Int32) -> UInt64 {
        UInt64(UInt32(bitPattern: high)) << 32 | UInt64(UInt32(bitPattern: low))
    }
}
