import Testing

@testable import EarshotCore

/// Order of the numbers, and number of steps of a search.
struct OrderedHandlesTests {
    @Test(arguments: [40, 300, 5_000])
    func `a table agrees with a sorted array over random insertions and removals`(keys: Int) {
        var table = OrderedHandles<Int>()
        var model: [Handle<Int>] = []
        var random = SplitMix64Generator(seed: UInt64(keys))
        // The table fills, and then empties.
        for step in 0..<20_000 {
            let number = Handle<Int>(slabIndex: Int.random(in: 0..<keys, using: &random))
            let position = table.firstPosition { $0 < number }
            let index = model.firstIndex { $0 >= number } ?? model.count
            #expect(table[position] == (index < model.count ? model[index] : nil))
            if table[position] == number {
                guard step > 10_000 || number.slabIndex % 2 == 0 else { continue }
                table.remove(at: position)
                model.remove(at: index)
            } else if step < 10_000 || number.slabIndex % 8 == 0 {
                table.insert(number, at: position)
                model.insert(number, at: index)
            }
            if step % 64 == 0 {
                #expect(table.handles(from: table.startPosition) { _ in true } == model)
                #expect(table.invariantViolation == nil)
                #expect(table.count == model.count)
            }
        }
    }

    @Test func `a range begins at its first number and ends before the first that does not belong`() {
        let table = Self.table(of: 0..<2_000)
        for first: Handle<Int> in [0, 1, 255, 256, 257, 1_999, 2_000] {
            let range = table.handles(from: table.firstPosition { $0 < first }) { $0 < first.advanced(by: 300) }
            #expect(range == Array(first..<max(first, min(first.advanced(by: 300), 2_000))))
        }
    }

    @Test func `a search among 100,000 numbers compares about 17 of them`() {
        let table = Self.table(of: 0..<100_000)
        var most = 0
        for wanted in stride(from: 0 as Handle<Int>, to: 100_000, by: 97) {
            var comparisons = 0
            let position = table.firstPosition {
                comparisons += 1
                return $0 < wanted
            }
            #expect(table[position] == wanted)
            most = max(most, comparisons)
        }
        #expect(most <= 20)
    }

    @Test func `a table that was emptied in any order is as a new one`() {
        var table = Self.table(of: 0..<3_000)
        var random = SplitMix64Generator(seed: 5)
        for number in ((0 as Handle<Int>)..<3_000).shuffled(using: &random) {
            table.remove(at: table.firstPosition { $0 < number })
            #expect(table.invariantViolation == nil)
        }
        #expect(table.count == 0)
        #expect(table[table.startPosition] == nil)
    }

    private static func table(of numbers: Range<Handle<Int>>) -> OrderedHandles<Int> {
        var table = OrderedHandles<Int>()
        for number in numbers { table.insert(number, at: table.firstPosition { $0 < number }) }
        return table
    }
}
