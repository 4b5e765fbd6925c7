import EarshotWire
import Testing

@testable import EarshotCore

/// The heap of turns against a sorted list.
struct TurnOrderTests {
    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `the line with the lowest tag is first after every event`(seed: UInt64) {
        var random = SplitMix64Generator(seed: seed)
        var order = PrincipalTurnHeap()
        var tags: [Handle<FairQueue.PrincipalQueue>: UInt64] = [:]
        for step in 1...500 as ClosedRange<UInt64> {
            let line = Handle<FairQueue.PrincipalQueue>(slabIndex: Int(random.next() % 30))
            // Unique tags, in any order.
            let tag = random.next() << 10 | step
            switch random.next() % 3 {
            case 0 where tags[line] == nil:
                order.insert(line, tag: tag)
                tags[line] = tag
            case 1:
                order.remove(line)
                tags[line] = nil
            default:
                let later = max(tag, (tags[line] ?? 0) + 1)
                order.increaseTag(of: line, to: later)
                if tags[line] != nil { tags[line] = later }
            }
            #expect(order.first == tags.min { $0.value < $1.value }?.key)
            #expect(order.count == tags.count && order.contains(line) == (tags[line] != nil))
            #expect(order.checkInvariants(tags: tags) == [], "seed \(seed), step \(step)")
        }
    }

    @Test func `each class has a value of its own`() {
        var values = PriorityClassTable(repeating: 0)
        for priority in PriorityClass.allCases { values[priority] += Int(priority.rawValue) + 1 }
        #expect(PriorityClass.allCases.map { values[$0] } == [1, 2, 3, 4])
        #expect(values != PriorityClassTable(repeating: 1) && values.allSatisfy { $0 > 0 })
    }
}
