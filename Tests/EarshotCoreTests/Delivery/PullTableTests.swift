import EarshotWire
import Testing

@testable import EarshotCore

/// READs of sessions in isolation: their turns, waits and bounds.
struct PullTableTests {
    private static func terminal(_ offset: Int) -> PullWindow.Read {
        PullWindow.Read(BodyRead(.terminal(1), offset: offset, maximumBytes: 1))
    }

    private static func growing(_ interest: Handle<Interest>, _ offset: Int) -> PullWindow.Read {
        let body = BodyReference.request(HandlerID("h")!, RequestID("1")!)
        return PullWindow.Read(
            BodyRead(body, offset: offset, maximumBytes: 1), of: GenerationalHandle(record: interest, generation: 1))
    }

    private static func table(_ sessions: Handle<ClientSession>...) -> PullTable {
        var table = PullTable()
        for session in sessions { table.addSession(session, of: PrincipalTable.administrator) }
        return table
    }

    /// Takes all READs, as `session:offset`.
    private func takeAll(_ table: inout PullTable) -> [String] {
        var taken: [String] = []
        while let (session, read) = table.popNextRead() { taken.append("\(session):\(read.message.offset)") }
        #expect(!table.hasAnswerableReads && table.checkInvariants() == [])
        return taken
    }

    @Test func `sessions take turns, one READ each`() {
        var table = Self.table(1, 2)
        for offset in 0..<4 { table.addRead(Self.terminal(offset), of: 1) }
        table.addRead(Self.terminal(0), of: 2)
        #expect(table.hasAnswerableReads && table.pendingReadCount(of: 1) == 4 && table.checkInvariants() == [])
        #expect(takeAll(&table) == ["1:0", "2:0", "1:1", "1:2", "1:3"])
        #expect(table.pendingReadCount(of: 1) == 0)
    }

    @Test func `principals take turns, however many sessions one has`() {
        var table = Self.table(1, 2, 3)
        table.addSession(4, of: 7)
        for session in [1, 2, 3, 4] as [Handle<ClientSession>] {
            for offset in 0..<2 { table.addRead(Self.terminal(offset), of: session) }
        }
        #expect(table.checkInvariants() == [])
        #expect(takeAll(&table) == ["1:0", "4:0", "2:0", "4:1", "3:0", "1:1", "2:1", "3:1"])
        table.addRead(Self.terminal(0), of: 4)
        table.detachSession(4)
        #expect(!table.hasAnswerableReads && table.checkInvariants() == [])
    }

    @Test func `a parked READ waits until its body grows`() {
        var table = Self.table(1, 2)
        table.parkRead(Self.growing(7, 0), of: 1)
        table.parkRead(Self.growing(8, 1), of: 1)
        table.parkRead(Self.growing(7, 2), of: 2)
        #expect(!table.hasAnswerableReads && table.pendingReadCount(of: 1) == 2 && table.checkInvariants() == [])
        table.bodyGrew(9)
        #expect(!table.hasAnswerableReads)
        table.bodyGrew(7)
        #expect(table.checkInvariants() == [])
        #expect(takeAll(&table) == ["1:0", "2:2"])
        table.bodyGrew(7)
        #expect(!table.hasAnswerableReads && table.pendingReadCount(of: 1) == 1)
    }

    @Test func `a refused READ is first again when the socket is writable`() {
        var table = Self.table(1, 2)
        for offset in 0..<2 { table.addRead(Self.terminal(offset), of: 1) }
        guard let (session, read) = table.popNextRead() else {
            Issue.record("no READ has a turn")
            return
        }
        table.restoreUnsentRead(read, of: session)
        table.addRead(Self.terminal(5), of: 2)
        table.addRead(Self.terminal(2), of: 1)
        #expect(table.checkInvariants() == [])
        #expect(takeAll(&table) == ["2:5"])
        table.unblock(1)
        #expect(takeAll(&table) == ["1:0", "1:1", "1:2"])
    }

    @Test func `a lost connection drops READs and keeps closed bodies`() {
        var table = Self.table(1)
        table.addRead(Self.terminal(0), of: 1)
        table.parkRead(Self.growing(7, 0), of: 1)
        table.closeBodies([3, 4], to: 1)
        table.detachSession(1)
        #expect(table.pendingReadCount(of: 1) == 0 && !table.hasAnswerableReads && table.checkInvariants() == [])
        table.addSession(1, of: PrincipalTable.administrator)
        #expect(table.isBodyClosed(3, to: 1) && !table.isBodyClosed(5, to: 1))
        table.terminalAcknowledged(3, by: 1)
        #expect(!table.isBodyClosed(3, to: 1) && table.isBodyClosed(4, to: 1))
        table.reopenBodies(after: 4, to: 1)
        #expect(table.isBodyClosed(4, to: 1))
        table.reopenBodies(after: 3, to: 1)
        #expect(!table.isBodyClosed(4, to: 1))
    }

    @Test func `an ended session leaves nothing`() {
        var table = Self.table(1)
        table.addRead(Self.terminal(0), of: 1)
        table.parkRead(Self.growing(7, 0), of: 1)
        table.removeSession(1)
        #expect(table.isEmpty && !table.hasAnswerableReads && table.checkInvariants() == [])
        table.bodyGrew(7)
        #expect(!table.hasAnswerableReads)
    }

    @Test func `void READs are dropped, and their turn and wait with them`() {
        var table = Self.table(1)
        table.addRead(Self.terminal(0), of: 1)
        table.parkRead(Self.growing(7, 0), of: 1)
        table.parkRead(Self.growing(8, 0), of: 1)
        table.removeReads(of: 1) { $0.growingBodyInterest?.record != 8 }
        #expect(
            !table.hasAnswerableReads && table.reads(of: 1) == [Self.growing(8, 0)] && table.checkInvariants() == [])
    }

    @Test func `reading is an activity until it is asked for`() {
        var table = Self.table(1)
        #expect(table.consumeActivityFlag(of: 1) == false)
        #expect(table.consumeActivityFlag(of: 2) == false)
        table.addRead(Self.terminal(0), of: 1)
        #expect(table.consumeActivityFlag(of: 1) == false)
        _ = takeAll(&table)
        #expect(table.consumeActivityFlag(of: 1) == true)
        #expect(table.consumeActivityFlag(of: 1) == false)
    }
}
