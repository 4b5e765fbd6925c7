import Testing

@testable import EarshotCore

/// Manual memory management: each record is destroyed exactly once, also after moves.
struct RecordStorageTests {
    /// Decrements a counter when it is destroyed.
    private final class Token {
        let onEnd: () -> Void
        init(_ onEnd: @escaping () -> Void) { self.onEnd = onEnd }
        deinit { onEnd() }
    }

    @Test(arguments: [1, 2, 3])
    func `a storage agrees with an array of optionals, and ends each record once`(seed: UInt64) {
        var random = SplitMix64Generator(seed: seed)
        var alive = 0
        do {
            var storage = RecordStorage<(Int, Token)>(capacity: 0)
            var model: [Int?] = []
            for step in 0..<6_000 {
                let place = Int.random(in: -1...model.count, using: &random)
                if storage.hasRecord(at: place) {
                    #expect(model[place] == storage[place].0)
                    if Bool.random(using: &random) {
                        storage.destroyRecord(at: place)
                        model[place] = nil
                    } else {
                        storage[place].0 += 1
                        model[place]? += 1
                    }
                } else if model.indices.contains(place) {
                    #expect(model[place] == nil)
                    alive += 1
                    storage.insertRecord((step, Token { alive -= 1 }), at: place)
                    model[place] = step
                } else if model.count < 500, Int.random(in: 0..<20, using: &random) == 0 {
                    let isShared = Bool.random(using: &random)
                    let before = storage
                    storage = storage.resized(to: max(8, 2 * storage.capacity), isShared: isShared)
                    #expect(storage.capacity >= max(8, 2 * before.capacity))
                    for place in 0..<before.capacity {
                        #expect(before.hasRecord(at: place) == (isShared && model[place] != nil))
                    }
                    model += Array(repeating: nil, count: storage.capacity - model.count)
                }
                #expect(alive == model.count { $0 != nil })
            }
            for place in model.indices {
                #expect((storage.hasRecord(at: place) ? storage[place].0 : nil) == model[place])
            }
        }
        #expect(alive == 0)
    }

    @Test func `a copy has records of its own`() {
        let storage = RecordStorage<String>(capacity: 3)
        storage.insertRecord("the first of two, too long to be inline", at: 0)
        storage.insertRecord("the second of two, too long to be inline", at: 2)
        let copy = storage.copy()
        storage.destroyRecord(at: 0)
        storage[2] += ", changed"
        #expect(copy.capacity == 3)
        #expect(copy[0] == "the first of two, too long to be inline")
        #expect(!copy.hasRecord(at: 1))
        #expect(copy[2] == "the second of two, too long to be inline")
    }

    @Test func `a record that ends finds its place empty, and may fill it`() {
        let storage = RecordStorage<Token>(capacity: 1)
        var seen: [Bool] = []
        storage.insertRecord(
            Token { [unowned storage] in
                seen.append(storage.hasRecord(at: 0))
            }, at: 0)
        storage.destroyRecord(at: 0)
        #expect(seen == [false])
    }

    @Test func `a place that is not there, or is taken, or is empty, traps`() async {
        await #expect(processExitsWith: .failure) { RecordStorage<Int>(capacity: 0).insertRecord(1, at: 0) }
        await #expect(processExitsWith: .failure) { RecordStorage<Int>(capacity: 4).insertRecord(1, at: -1) }
        await #expect(processExitsWith: .failure) {
            let storage = RecordStorage<Int>(capacity: 4)
            storage.insertRecord(1, at: 3)
            storage.insertRecord(2, at: 3)
        }
        await #expect(processExitsWith: .failure) { RecordStorage<Int>(capacity: 4).destroyRecord(at: 0) }
        await #expect(processExitsWith: .failure) { _ = RecordStorage<Int>(capacity: 4)[0] }
        await #expect(processExitsWith: .failure) { RecordStorage<Int>(capacity: 4)[4] += 1 }
    }
}
