import Testing

@testable import EarshotCore

/// Lookups in a hash table, also with equal hashes.
struct HandleTableTests {
    @Test(arguments: [1, 7, 1 << 20])
    func `a table agrees with a dictionary over random insertions and removals`(hashes: UInt32) {
        var table = HandleTable<Int>()
        var model: [Handle<Int>: UInt32] = [:]
        var random = SplitMix(seed: UInt64(hashes))
        for _ in 0..<6_000 {
            let number = Handle<Int>(index: Int.random(in: 0..<300, using: &random))
            if let hash = model.removeValue(forKey: number) {
                table.remove(number, hash)
            } else {
                let hash = UInt32.random(in: 0..<hashes, using: &random)
                model[number] = hash
                table.insert(number, hash)
            }
            if Int.random(in: 0..<50, using: &random) == 0 { table.releaseRoom(least: 0) }
            #expect(table.count == model.count)
            let asked = Handle<Int>(index: Int.random(in: 0..<300, using: &random))
            #expect(table.find(model[asked] ?? 0) { $0 == asked } == (model[asked] == nil ? nil : asked))
        }
        for (number, hash) in model { #expect(table.find(hash) { $0 == number } == number) }
    }
}
