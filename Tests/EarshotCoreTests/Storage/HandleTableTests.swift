import Testing

@testable import EarshotCore

/// Lookups in a hash table, also with equal hashes.
struct HandleTableTests {
    @Test(arguments: [1, 7, 1 << 20])
    func `a table agrees with a dictionary over random insertions and removals`(hashes: UInt32) {
        var table = HandleTable<Int>()
        var model: [Handle<Int>: UInt32] = [:]
        var random = SplitMix64Generator(seed: UInt64(hashes))
        for _ in 0..<6_000 {
            let number = Handle<Int>(slabIndex: Int.random(in: 0..<300, using: &random))
            if let hash = model.removeValue(forKey: number) {
                table.remove(number, hash)
            } else {
                let hash = UInt32.random(in: 0..<hashes, using: &random)
                model[number] = hash
                table.insert(number, hash)
            }
            if Int.random(in: 0..<50, using: &random) == 0 { table.releaseSpareCapacity(retaining: 0) }
            #expect(table.count == model.count)
            let requested = Handle<Int>(slabIndex: Int.random(in: 0..<300, using: &random))
            #expect(
                table.findRecord(withHash: model[requested] ?? 0) { $0 == requested }
                    == (model[requested] == nil ? nil : requested))
        }
        for (number, hash) in model { #expect(table.findRecord(withHash: hash) { $0 == number } == number) }
    }

    @Test func `a large table finds each record at each of its sizes`() {
        var table = HandleTable<Int>()
        let hashes = (0..<100_000 as Range<Int32>).map { NumberHash.hash($0, 1) }
        func lost(_ records: Range<Int>) -> Int {
            records.count { record in table.findRecord(withHash: hashes[record]) { $0.slabIndex == record } == nil }
        }
        // Three quarters of the places are used at most: the table has 65,536 of them, then 98,304, then 131,072.
        for bound in [49_000, 73_000, 98_000] {
            for record in table.count..<bound { table.insert(Handle(slabIndex: record), hashes[record]) }
            #expect(lost(0..<bound) == 0 && lost(bound..<100_000) == 100_000 - bound)
        }
        for bound in [30_000, 8_000, 0] {
            for record in bound..<table.count { table.remove(Handle(slabIndex: record), hashes[record]) }
            table.releaseSpareCapacity(retaining: 0)
            #expect(lost(0..<bound) == 0 && lost(bound..<100_000) == 100_000 - bound)
        }
    }
}
