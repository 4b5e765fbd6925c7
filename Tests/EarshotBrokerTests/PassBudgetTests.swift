import Testing
import ZMTP

@testable import EarshotBroker

/// Shares of several users in the work of a pass.
struct PassBudgetTests {
    /// Turns of each user in one pass, if all have endless input.
    private func turns(of users: [UInt32?], isShared: Bool, items: Int = PassBudget.itemsPerTurn) -> [Int] {
        var pass = PassBudget(isSharedPort: isShared)
        var turns = [UInt32?: Int]()
        while let user = users.first(where: { !pass.isExhausted(for: $0) }), !pass.isExhausted {
            let turn = pass.nextTurn
            pass.spend(turn, unused: Turn(items: turn.remainingItems - items, bytes: turn.remainingBytes), by: user)
            turns[user, default: 0] += 1
        }
        return users.map { turns[$0] ?? 0 }
    }

    @Test func `each user causes a quarter of the work of a pass, and the administrator three quarters`() {
        #expect(turns(of: [1001], isShared: true) == [4])
        #expect(turns(of: [1001, 1002, nil], isShared: true) == [4, 4, 8])
        #expect(turns(of: [nil, 1001], isShared: true) == [12, 4])
        #expect(turns(of: [1001], isShared: false) == [16])
    }

    @Test func `one message can cost more than the part of a user`() {
        #expect(turns(of: [1001, 1002], isShared: true, items: 400) == [1, 1])
    }

    @Test func `bytes count as well`() {
        var pass = PassBudget(isSharedPort: true)
        for _ in 1...2 { pass.spend(Turn(items: 32, bytes: 1 << 20), unused: Turn(items: 31, bytes: 0), by: 1001) }
        #expect(pass.isExhausted(for: 1001) && !pass.isExhausted(for: 1002) && !pass.isExhausted)
    }
}
