/// Hash table of handles. The records themselves hold the keys, so an entry costs 8 bytes and its share of empty
/// buckets: 11 to 16 bytes in a large table.
///
/// Open addressing with linear probing. A removal shifts later entries back instead of leaving a tombstone, so lookups
/// stay fast. The number of buckets is a power of two, or in a large table one and a half times a power of two.
struct HandleTable<Record> {
    private struct Bucket {
        /// Nil if the bucket is empty.
        @OptionalHandle var record: Handle<Record>? = nil
        var hash: UInt32 = 0
    }

    private static var minimumBucketCount: Int { 16 }
    /// Number of buckets from which a table grows in smaller steps. Below, fewer probes are worth more than the memory.
    static var largeTableBucketCount: Int { 65_536 }

    private var buckets: [Bucket] = []
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Returns the record with this hash that `isMatch` accepts.
    func findRecord(withHash hash: UInt32, _ isMatch: (Handle<Record>) -> Bool) -> Handle<Record>? {
        guard !buckets.isEmpty else { return nil }
        var index = homeIndex(of: hash)
        while let record = buckets[index].record {
            if buckets[index].hash == hash, isMatch(record) { return record }
            index = nextProbeIndex(index)
        }
        return nil
    }

    /// Adds a record, which must not be in the table with this hash. O(1) amortised.
    mutating func insert(_ record: Handle<Record>, _ hash: UInt32) {
        if (count + 1) * 4 > buckets.count * 3 { grow() }
        placeInFreeBucket(Bucket(record: record, hash: hash))
        count += 1
    }

    /// Removes a record; no effect if it is absent.
    mutating func remove(_ record: Handle<Record>, _ hash: UInt32) {
        guard !buckets.isEmpty else { return }
        var gap = homeIndex(of: hash)
        while let other = buckets[gap].record, other != record { gap = nextProbeIndex(gap) }
        guard buckets[gap].record != nil else { return }
        count -= 1
        var index = nextProbeIndex(gap)
        while buckets[index].record != nil {
            // An entry may move into the gap unless its home lies after the gap.
            let home = homeIndex(of: buckets[index].hash)
            if probeDistance(from: home, to: index) >= probeDistance(from: gap, to: index) {
                buckets[gap] = buckets[index]
                gap = index
            }
            index = nextProbeIndex(index)
        }
        buckets[gap] = Bucket()
    }

    /// Scales a hash to the number of buckets, by its upper bits.
    private func homeIndex(of hash: UInt32) -> Int { (Int(hash) &* buckets.count) >> 32 }

    private func nextProbeIndex(_ index: Int) -> Int { index + 1 < buckets.count ? index + 1 : 0 }

    /// Number of steps of `nextProbeIndex` from one bucket to another.
    private func probeDistance(from start: Int, to end: Int) -> Int { end - start + (end < start ? buckets.count : 0) }

    private mutating func placeInFreeBucket(_ entry: Bucket) {
        var index = homeIndex(of: entry.hash)
        while buckets[index].record != nil { index = nextProbeIndex(index) }
        buckets[index] = entry
    }

    /// Releases spare capacity beyond `least` buckets. At most half of the buckets are in use afterwards.
    mutating func releaseSpareCapacity(retaining least: Int) {
        guard CapacityShrinking.isMostlyUnused(buckets.count, used: count, least: least) else { return }
        var capacity = Self.minimumBucketCount
        while capacity < count * 2 { capacity = Self.nextCapacity(above: capacity) }
        resize(to: capacity)
    }

    private mutating func grow() {
        resize(to: buckets.isEmpty ? Self.minimumBucketCount : Self.nextCapacity(above: buckets.count))
    }

    /// The next number of buckets: 16, 32 and so on to 65,536, 98,304, 131,072, 196,608 and so on.
    private static func nextCapacity(above capacity: Int) -> Int {
        guard capacity >= largeTableBucketCount else { return capacity * 2 }
        return capacity & (capacity - 1) == 0 ? capacity / 2 * 3 : capacity / 3 * 4
    }

    /// - Parameter capacity: greater than four thirds of the count.
    private mutating func resize(to capacity: Int) {
        let old = buckets
        buckets = [Bucket](repeating: Bucket(), count: capacity)
        for entry in old where entry.record != nil { placeInFreeBucket(entry) }
    }
}

/// Hashes of keys that consist of a few record numbers, for a `HandleTable`. They take two multiplications, where
/// `Hasher` takes a hundred instructions and more.
///
/// Peers influence which record numbers exist, and so which keys occur. Two random words per process prevent peers from
/// constructing collisions.
enum NumberHash {
    private static let hashSeeds = (randomWord(1), randomWord(2))

    /// Returns a random word: `Hasher` is seeded per process.
    private static func randomWord(_ number: Int) -> UInt64 { UInt64(truncatingIfNeeded: number.hashValue) }

    static func hash(_ first: Int32, _ second: Int32, _ third: Int32 = 0, _ fourth: Int32 = 0) -> UInt32 {
        hash(packedPair(first, second), packedPair(third, fourth))
    }

    static func hash(_ first: UInt64, _ second: UInt64 = 0) -> UInt32 {
        // Consecutive numbers yield multiples of one of the words. Without the second product they would cluster in few
        // buckets of a table, in one process of a hundred.
        let product = foldedProduct(first ^ hashSeeds.0, second ^ hashSeeds.1)
        return UInt32(truncatingIfNeeded: foldedProduct(product, 0x9e37_79b9_7f4a_7c15))
    }

    private static func foldedProduct(_ first: UInt64, _ second: UInt64) -> UInt64 {
        let product = first.multipliedFullWidth(by: second)
        return product.high ^ product.low
    }

    private static func packedPair(_ high: Int32, _ low: Int32) -> UInt64 {
        UInt64(UInt32(bitPattern: high)) << 32 | UInt64(UInt32(bitPattern: low))
    }
}
