import EarshotWire
import Testing

@testable import EarshotCore

/// The table of sessions in isolation: each event in each phase of a session, connections, tokens and leases.
struct SessionTableTests {
    private static let id = ClientID(rawValue: 1)
    private static let token = SessionToken(highBits: 7, lowBits: 1)
    private var table = SessionTable()

    /// Phase of the session before an event. One that has ended waits for its purge.
    enum Phase: CaseIterable {
        case joining, open, leased, away, ended

        static func of(_ table: SessionTable) -> Phase? {
            guard let number = table.handles.first else { return nil }
            let session = table[number]
            guard !session.hasEnded else { return .ended }
            return switch session.phase {
            case .joining: .joining
            case .open: session.leaseMilliseconds > 0 ? .leased : .open
            case .away: .away
            }
        }
    }

    enum Event: CaseIterable {
        case open, openWithLease, suspend, resume, end, remove
    }

    @Test func `the diagram of a session has these transitions and no others`() {
        let phases = ClientSession.Phase.allCases
        let legal = phases.map { from in phases.map { ClientSession.isLegal(from: from, to: $0) } }
        #expect(legal == [[false, true, false], [false, false, true], [false, true, false]])
    }

    private static func connect(_ table: inout SessionTable, _ number: UInt64) {
        table.addConnectedSession(
            ClientID(rawValue: number), token: SessionToken(highBits: 7, lowBits: number), generation: number)
    }

    private static func open(_ table: inout SessionTable, _ session: Handle<ClientSession>, lease: Int) {
        table.open(session, leaseMilliseconds: lease)
        table[session].deliveries.attach(size: 16)
    }

    private static func suspend(_ table: inout SessionTable, _ session: Handle<ClientSession>, absence: UInt64 = 5) {
        _ = table.removeConnection(table[session].id)
        table.suspend(session, absence: absence)
        table[session].deliveries.detach()
    }

    private static func table(_ phase: Phase) -> SessionTable {
        var table = SessionTable()
        connect(&table, 1)
        guard phase != .joining else { return table }
        open(&table, 0, lease: phase == .open ? 0 : 100)
        if phase == .away { suspend(&table, 0) }
        if phase == .ended {
            _ = table.removeConnection(id)
            table.endLease(of: 0)
            table[0].deliveries.end()
            table.enqueueForRemoval(0)
        }
        return table
    }

    /// Whether an event can occur in a phase, and the expected phase; nil if the session is removed.
    private static func expected(_ event: Event, _ phase: Phase) -> (isPossible: Bool, phase: Phase?) {
        switch (event, phase) {
        case (.open, .joining): (true, .open)
        case (.openWithLease, .joining): (true, .leased)
        case (.suspend, .leased): (true, .away)
        case (.resume, .away): (true, .leased)
        case (.end, .joining), (.end, .open), (.end, .leased), (.end, .away): (true, .ended)
        case (.remove, .ended): (true, nil)
        case (.open, _), (.openWithLease, _), (.suspend, _), (.resume, _), (.end, _), (.remove, _): (false, nil)
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) {
        let expected = Self.expected(event, phase)
        guard expected.isPossible else { return }
        var table = Self.table(phase)
        #expect(Phase.of(table) == phase)
        #expect(table.checkInvariants() == [])
        let isConnected = phase != .away && phase != .ended
        #expect((table.handle(of: Self.id) == 0) == isConnected && table.connectedCount == (isConnected ? 1 : 0))
        #expect((table.handle(of: Self.token) == 0) == (phase == .leased || phase == .away))
        switch event {
        case .open: Self.open(&table, 0, lease: 0)
        case .openWithLease: Self.open(&table, 0, lease: 100)
        case .suspend: Self.suspend(&table, 0)
        case .resume:
            Self.connect(&table, 2)
            table.resume(0, over: 1)
            Self.open(&table, 0, lease: 100)
            #expect(table.count == 1 && table.handle(of: ClientID(rawValue: 2)) == 0)
            #expect(table[0].id == ClientID(rawValue: 2) && table[0].token == Self.token)
        case .end:
            _ = table.removeConnection(Self.id)
            table.endLease(of: 0)
            table[0].deliveries.end()
            table.enqueueForRemoval(0)
        case .remove: table.removeFirstEndedSession()
        }
        #expect(Phase.of(table) == expected.phase)
        #expect(Array(table.endedSessions) == (expected.phase == .ended ? [0] : []))
        #expect(Array(table.awaySessions) == (expected.phase == .away ? [0] : []))
        #expect(table.checkInvariants() == [])
    }

    @Test mutating func `sessions that are away keep the order of their absence`() {
        for number in 1...3 as ClosedRange<UInt64> {
            Self.connect(&table, number)
            Self.open(&table, Handle(slabIndex: Int(number) - 1), lease: 100)
        }
        for session in [1, 0, 2] as [Handle<ClientSession>] {
            Self.suspend(&table, session, absence: UInt64(10 + session.slabIndex))
        }
        #expect(Array(table.awaySessions) == [1, 0, 2] && table[0].disconnectEpoch == 10)
        table.endLease(of: 1)
        table[1].deliveries.end()
        table.remove(1)
        #expect(Array(table.awaySessions) == [0, 2])
        #expect(table.handle(of: SessionToken(highBits: 7, lowBits: 2)) == nil)
        #expect(table.checkInvariants() == [])
    }

    @Test mutating func `an ended session keeps its number, and its connection may begin another one`() {
        Self.connect(&table, 1)
        Self.open(&table, 0, lease: 0)
        #expect(table.removeConnection(Self.id) == 0)
        #expect(table.removeConnection(Self.id) == nil)
        table.endLease(of: 0)
        table[0].deliveries.end()
        table.enqueueForRemoval(0)
        Self.connect(&table, 1)
        #expect(table.handle(of: Self.id) == 1 && table.count == 2)
        #expect(table.checkInvariants() == [])
        table.removeFirstEndedSession()
        #expect(table.handles == [1] && table.checkInvariants() == [])
    }

    @Test mutating func `a session that gives up its lease cannot be resumed`() {
        Self.connect(&table, 1)
        Self.open(&table, 0, lease: 100)
        Self.suspend(&table, 0)
        Self.connect(&table, 2)
        table.resume(0, over: 1)
        Self.open(&table, 0, lease: 0)
        #expect(table.handle(of: Self.token) == nil && table[0].disconnectEpoch == nil)
        #expect(table.checkInvariants() == [])
    }

    @Test mutating func `released memory changes nothing`() {
        for number in 1...100 as ClosedRange<UInt64> {
            Self.connect(&table, number)
            Self.open(&table, Handle(slabIndex: Int(number) - 1), lease: 100)
        }
        for number in 3...100 as ClosedRange<UInt64> {
            let session = Handle<ClientSession>(slabIndex: Int(number) - 1)
            _ = table.removeConnection(ClientID(rawValue: number))
            table.endLease(of: session)
            table[session].deliveries.end()
            table.remove(session)
        }
        table.releaseSpareCapacity(retaining: 8)
        #expect(table.count == 2 && table.handle(of: Self.token) == 0 && table.checkInvariants() == [])
    }
}
