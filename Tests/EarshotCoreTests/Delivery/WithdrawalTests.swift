import EarshotWire
import Testing

@testable import EarshotCore

private let requester = ClientID(rawValue: 1)
private let reader = ClientID(rawValue: 2)

/// Terminals that wait for a client when it removes their requests: they are withdrawn in slices, none of them is sent
/// from the removal on, and the reply follows the last slice.
struct WithdrawalTests {
    private var rig: CoreRig

    /// The reader has subscribed to `h`, `k` and the subtree `s/`.
    init() {
        var limits = CoreLimits()
        limits.maximumWithdrawalChecksPerPass = 2
        rig = CoreRig(limits: limits)
        _ = rig.client(1, window: 1_000)
        _ = rig.client(2, window: 1) { $0.leaseMilliseconds = 1_000 }
        for pattern in ["h", "k", "s/"] { rig.send(.subscribe(HandlerPattern(pattern)!), by: reader) }
        rig.pass()
    }

    /// Requests fail at once, so their terminals are due to the reader in this order. The first one is in its window.
    private mutating func fail(_ handlers: String...) {
        rig.pass { rig in
            for (number, handler) in handlers.enumerated() {
                rig.fetch(handler, "\(number)", "nonsense", by: requester) { $0.options.subscribes = false }
            }
        }
        #expect(rig.terminals(for: reader) == ["\(handlers[0]) 0 malformed-url"])
    }

    private mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
        rig.pass(body)
        #expect(rig.core.audit() == [])
    }

    /// Runs passes until no removal is under way.
    ///
    /// - Returns: number of passes, and the terminals sent to a client meanwhile.
    private mutating func finish(_ client: ClientID) -> (passes: Int, terminals: [String]) {
        var (passes, terminals) = (0, rig.terminals(for: client))
        while rig.core.hasPendingRemovals {
            pass()
            passes += 1
            terminals += rig.terminals(for: client)
        }
        return (passes, terminals)
    }

    private var due: [Int] {
        let deliveries = rig.core.ledger.deliveries
        return [deliveries.outstanding, deliveries.lost, rig.core.records.clients[1].deliveries.unsentCount]
    }

    // MARK: Slices

    @Test mutating func `many waiting terminals are withdrawn in slices, and then the removal is answered`() {
        fail("k", "h", "h", "k", "h", "h", "h", "h", "k", "h")
        #expect(due == [10, 0, 9])
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        #expect(rig.core.hasPendingRemoval(by: reader) && rig.replies(to: reader) == [])
        #expect(due == [8, 2, 7] && rig.core.audit() == [])
        pass()
        #expect(due == [7, 3, 6] && rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
        pass()
        #expect(due == [5, 5, 4] && rig.replies(to: reader) == [])
        let (passes, terminals) = finish(reader)
        #expect(passes == 2 && terminals == [], "the window is full")
        #expect(due == [3, 7, 2])
        #expect(rig.replies(to: reader) == [.handlersRemoved(HandlerPattern("h")!, count: 0)])
        pass { $0.send(.acknowledge(1), by: reader) }
        #expect(rig.terminals(for: reader) == ["k 3 malformed-url"])
        pass { $0.send(.acknowledge(2), by: reader) }
        #expect(rig.terminals(for: reader) == ["k 8 malformed-url"])
        pass { $0.send(.acknowledge(3), by: reader) }
        #expect(rig.core.isIdle)
    }

    @Test mutating func `few waiting terminals are withdrawn with the message`() {
        fail("k", "h", "h")
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        #expect(!rig.core.hasPendingRemoval(by: reader) && due == [1, 2, 0])
    }

    @Test mutating func `one removed request is looked for in slices, too`() {
        fail("k", "h", "k", "h", "h", "h")
        rig.send(.removeRequest(HandlerID("h")!, RequestID("4")!), by: reader)
        #expect(rig.core.hasPendingRemoval(by: reader) && due == [6, 0, 5])
        _ = finish(reader)
        #expect(rig.replies(to: reader) == [.requestRemoved(HandlerID("h")!, RequestID("4")!, wasOpen: false)])
        #expect(due == [5, 1, 4])
        for sequence in 1...4 as ClosedRange<UInt64> { pass { $0.send(.acknowledge(sequence), by: reader) } }
        #expect(rig.terminals(for: reader) == ["h 5 malformed-url"])
    }

    @Test mutating func `clients whose terminals are withdrawn take turns`() {
        let other = rig.client(3, window: 1)
        rig.send(.subscribe(HandlerPattern("h")!), by: other)
        fail("h", "h", "h", "h", "h", "h", "h", "h", "h")
        rig.pass { rig in
            rig.remove("h", by: reader)
            rig.remove("h", by: other)
        }
        #expect(
            rig.core.records.clients[1].deliveries.unsentCount == 4
                && rig.core.records.clients[2].deliveries.unsentCount == 6)
        pass()
        #expect(
            rig.core.records.clients[1].deliveries.unsentCount == 4
                && rig.core.records.clients[2].deliveries.unsentCount == 4)
        _ = finish(reader)
        #expect(rig.core.ledger.deliveries.lost == 16 && rig.core.ledger.deliveries.outstanding == 2)
    }

    @Test mutating func `a FETCH that replaces is carried out after the withdrawal`() {
        fail("k", "h", "h", "h", "h", "h")
        rig.fetch("h", "1", "nonsense", by: reader) { $0.options.replacesHandler = true }
        #expect(rig.core.hasPendingRemoval(by: reader) && rig.core.ledger.requests.submitted == 6)
        _ = finish(reader)
        #expect(rig.core.ledger.requests.submitted == 7 && due == [2, 5, 1])
        pass { $0.send(.acknowledge(1), by: reader) }
        #expect(rig.terminals(for: reader) == ["h 1 malformed-url"], "that of the new request")
    }

    // MARK: Events during a withdrawal

    @Test mutating func `nothing of a removed handler is sent though the window has room again`() {
        fail("k", "h", "k", "h", "h", "h", "h")
        rig.core.socketRefusedTerminal(1, by: reader)
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        pass { $0.core.clientSocketWritable(reader) }
        #expect(rig.core.hasPendingRemoval(by: reader) && rig.terminals(for: reader) == [])
        #expect(finish(reader).terminals == ["k 0 malformed-url"])
        pass { $0.send(.acknowledge(1), by: reader) }
        #expect(rig.terminals(for: reader) == ["k 2 malformed-url"])
    }

    @Test mutating func `a new request of the removed name that ends meanwhile is delivered`() {
        fail("k", "s/x", "s/x", "s/x", "s/x", "s/x", "s/x", "s/x")
        rig.send(.removeHandlers(HandlerPattern("s/x")!), by: reader)
        pass { $0.fetch("s/x", "1", "nonsense", by: requester) }
        #expect(rig.core.hasPendingRemoval(by: reader))
        _ = finish(reader)
        #expect(due[1...] == [7, 1])
        pass { $0.send(.acknowledge(1), by: reader) }
        #expect(rig.terminals(for: reader) == ["s/x 1 malformed-url"])
    }

    @Test mutating func `a client that ends meanwhile leaves nothing behind`() {
        fail("k", "h", "h", "k", "h", "h", "h", "h")
        rig.core.limits.maximumDisconnectedSessions = 0
        rig.core.limits.maximumSessionCleanupsPerPass = 3
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        pass { $0.core.clientLost(reader, now: $0.now) }
        #expect(due[0] > 0)
        _ = finish(reader)
        #expect(rig.core.ledger.deliveries.lost == 8 && rig.core.isIdle)
    }

    @Test mutating func `a session that is resumed meanwhile gets the rest, and then the answer`() {
        fail("k", "h", "h", "k", "h", "h", "h", "h")
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        pass { $0.core.clientLost(reader, now: $0.now) }
        let next = ClientID(rawValue: 3)
        var hello = Hello(window: 4)
        hello.leaseMilliseconds = 1_000
        hello.token = CoreRig.token(of: reader)
        pass { rig in
            rig.connect(next)
            rig.core.clientMessageReceived(.hello(hello), from: next, now: rig.now)
        }
        #expect(rig.core.hasPendingRemoval(by: next))
        #expect(finish(next).terminals == ["k 0 malformed-url", "k 3 malformed-url"])
        #expect(rig.replies(to: next) == [.handlersRemoved(HandlerPattern("h")!, count: 0)])
    }

    @Test mutating func `a terminal that the socket refuses meanwhile is checked, too`() {
        fail("h", "h", "k", "h", "h", "h")
        rig.send(.removeHandlers(HandlerPattern("h")!), by: reader)
        // Sent before the removal, and refused after the pass.
        rig.core.socketRefusedTerminal(1, by: reader)
        pass { $0.core.clientSocketWritable(reader) }
        #expect(finish(reader).terminals == ["k 2 malformed-url"])
        #expect(due == [1, 5, 0])
    }

    @Test mutating func `a terminal sent before the removal in its pass and refused does not follow the answer`() {
        rig.pass { rig in
            rig.fetch("h", "0", "nonsense", by: requester)
            rig.remove("h", by: reader)
            rig.remove("k", "1", by: reader)
            rig.send(.subscribe(HandlerPattern("h")!), by: reader)
        }
        #expect(rig.terminals(for: reader) == ["h 0 malformed-url"])
        #expect(rig.replies(to: reader).count == 2)
        rig.core.socketRefusedTerminal(1, by: reader)
        pass { $0.core.clientSocketWritable(reader) }
        #expect(rig.terminals(for: reader) == [] && due == [1, 1, 0])
        // Those of later requests are not concerned.
        pass { $0.fetch("h", "1", "nonsense", by: requester) }
        rig.core.socketRefusedTerminal(1, by: reader)
        pass { $0.core.clientSocketWritable(reader) }
        #expect(rig.terminals(for: reader) == ["h 1 malformed-url"])
    }

    @Test mutating func `a client that is away is served again when its terminals are withdrawn`() {
        rig.core.limits.maximumSessionCleanupsPerPass = 1
        pass { rig in
            rig.fetch("k", "1", "http://k/", by: reader)
            for (handler, number) in [("s/1", 1), ("s/1", 2), ("s/2", 3)] {
                rig.fetch(handler, "\(number)", "nonsense", by: reader)
            }
        }
        pass { _ = $0.worker() }
        #expect(rig.jobs == [], "its window is full")
        pass { rig in
            rig.remove("s/", by: reader)
            rig.core.clientLost(reader, now: rig.now)
        }
        var jobs = rig.jobs
        while rig.core.hasPendingRemovals {
            pass()
            jobs += rig.jobs
        }
        #expect(jobs.map(\.url) == ["http://k/"])
    }
}
