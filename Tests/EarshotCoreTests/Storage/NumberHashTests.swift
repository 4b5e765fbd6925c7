import Testing

@testable import EarshotCore

/// Distribution of hashes of similar keys, such as record numbers.
struct NumberHashTests {
    /// Maximum share of a table's places that stay unused, with any secret words. Random hashes leave 37 % unused.
    private static let maximumUnused = 0.45

    /// Share of places without a hash, in a table with as many places as hashes.
    private static func unused(_ hashes: [UInt32]) -> Double {
        let places = hashes.count
        return 1 - Double(Set(hashes.map { (Int($0) * places) >> 32 }).count) / Double(places)
    }

    @Test func `a key has one hash, whichever way it is said`() {
        var random = SplitMix64Generator(seed: 1)
        for _ in 0..<2_000 {
            let key = (0..<4).map { _ in Int32.random(in: .min ... .max, using: &random) }
            let hash = NumberHash.hash(key[0], key[1], key[2], key[3])
            #expect(hash == NumberHash.hash(key[0], key[1], key[2], key[3]))
            func word(_ high: Int32, _ low: Int32) -> UInt64 {
                UInt64(UInt32(bitPattern: high)) << 32 + UInt64(UInt32(bitPattern: low))
            }
            #expect(hash == NumberHash.hash(word(key[0], key[1]), word(key[2], key[3])))
        }
        #expect(NumberHash.hash(5 as Int32, 6) == NumberHash.hash(5 as Int32, 6, 0, 0))
        #expect(NumberHash.hash(5 as UInt64) == NumberHash.hash(5 as UInt64, 0))
    }

    @Test func `numbers that change places, or sign, change the hash`() {
        var hashes: [UInt32] = []
        for key in [
            [1, 2, 3, 4], [2, 1, 3, 4], [1, 2, 4, 3], [3, 4, 1, 2], [-1, 2, 3, 4], [1, -2, 3, 4], [1, 2, 3, -4],
        ] as [[Int32]] {
            hashes.append(NumberHash.hash(key[0], key[1], key[2], key[3]))
        }
        // Two hashes collide by chance in one of four billion cases.
        #expect(Set(hashes).count == hashes.count)
    }

    /// Keys with one kind of similarity.
    struct Pattern: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let key: @Sendable (UInt64) -> (UInt64, UInt64)
    }

    /// Keys that occur in the core, and keys that an attacker might construct for collisions.
    static let patterns = [
        Pattern(testDescription: "numbers in a row") { ($0, 0) },
        Pattern(testDescription: "second numbers in a row") { (7, $0) },
        Pattern(testDescription: "pairs of small numbers") { ($0 % 64, $0 / 64) },
        Pattern(testDescription: "equal numbers") { ($0, $0) },
        Pattern(testDescription: "numbers that differ in their high halves") { ($0 << 32, 1) },
        Pattern(testDescription: "numbers that differ in their highest bits") { ($0 << 52, 1) },
        Pattern(testDescription: "second numbers that differ in their highest bits") { (1, $0 << 52) },
        Pattern(testDescription: "multiples of a table's size") { ($0 << 12, $0 << 12) },
        Pattern(testDescription: "numbers near the end of their range") { (.max - $0, .max) },
    ]

    @Test(arguments: patterns)
    func `keys that are alike fall apart`(pattern: Pattern) {
        let hashes = (0..<4_096 as Range<UInt64>).map { number in
            let (first, second) = pattern.key(number)
            return NumberHash.hash(first, second)
        }
        #expect(Self.unused(hashes) < Self.maximumUnused)
        #expect(Self.unused(hashes.map { $0 << 16 }) < Self.maximumUnused, "by their low halves")
    }
}
