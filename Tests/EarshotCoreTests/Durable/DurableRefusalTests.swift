import EarshotWire
import Testing

@testable import EarshotCore

/// Replies to durable requests of clients that do not subscribe: ACCEPTED, or FAILED without a sequence number.
struct DurableRefusalTests {
    private static func submit(_ fetch: inout Fetch) {
        fetch.options.isDurable = true
        fetch.options.subscribes = false
    }

    /// Whether a client's only message in the last pass is a FAILED of request 1 with this code and without a number.
    private func isRefused(_ bed: DurableBed, _ client: ClientID, _ code: String) -> Bool {
        let replies = bed.rig.replies(to: client)
        guard bed.rig.terminals(for: client).isEmpty, replies.count == 1, case .terminal(let terminal) = replies[0],
            case .failed(let failure) = terminal.outcome
        else { return false }
        return terminal.sequence == 0 && failure.code == code
    }

    @Test func `a refused request answers whoever does not listen, without a number and an acknowledgement`() {
        var bed = DurableBed()
        let client = bed.rig.client(1, window: 2)
        let watcher = bed.rig.client(2)
        func refused(_ fetch: inout Fetch) {
            Self.submit(&fetch)
            fetch.options.method = "POST"
            fetch.options.coalesces = false
        }
        for _ in 1...5 {
            bed.pass { $0.fetch("h", "1", "http://a/", by: client, refused) }
            #expect(isRefused(bed, client, "unsupported-method"))
        }
        #expect(bed.rig.core.ledger.deliveries.started == 0)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: watcher) }
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, refused) }
        #expect(isRefused(bed, client, "unsupported-method"))
        #expect(bed.rig.terminals(for: watcher) == ["h 1 unsupported-method"])
        #expect(bed.rig.core.ledger.requests.failed["unsupported-method"] == 6)
    }

    @Test func `so does one for which there is no room, and one that is removed before it is on the disk`() {
        var bed = DurableBed()
        bed.disk.isFull = true
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submit) }
        #expect(isRefused(bed, client, "queue-full"))
        let remover = bed.rig.client(2)
        bed.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client, Self.submit)
            rig.remove("h", by: remover)
        }
        #expect(isRefused(bed, client, "removed"))
        #expect(bed.rig.replies(to: remover) == [.handlersRemoved(HandlerPattern("h")!, count: 1)])
        #expect(bed.rig.core.ledger.deliveries.started == 0 && bed.rig.core.isIdle)
    }

    @Test(arguments: [false, true]) func `the answer finds a client that came back to its session`(isFull: Bool) {
        var bed = DurableBed()
        bed.disk.isFull = isFull
        let ids = (1...3).map { ClientID(rawValue: $0) }
        var hello = Hello()
        hello.leaseMilliseconds = 1_000
        bed.rig.pass { rig in
            rig.connect(ids[0])
            rig.send(.hello(hello), by: ids[0])
            for number in 1...2 as ClosedRange<UInt64> {
                var fetch = Fetch(handler: HandlerID("h")!, request: RequestID("\(number)")!, url: "http://a/")
                Self.submit(&fetch)
                rig.send(.fetch(fetch), number: number, by: ids[0])
            }
        }
        let requested = bed.rig.actions
        bed.rig.pass { $0.core.clientLost(ids[0], now: $0.now) }
        hello.token = CoreRig.token(of: ids[0])
        hello.firstUnansweredNumber = 1
        // The disk completes the first write while the client is away, and the second after its return.
        bed.disk.take(
            requested.filter {
                if case .durable(.storeRequest(DurableID(rawValue: 1), _, _, _)) = $0 { true } else { false }
            })
        bed.pass()
        bed.pass { rig in
            rig.connect(ids[1])
            rig.send(.hello(hello), by: ids[1])
        }
        #expect(verbs(of: bed, ids[1]) == ["WELCOME", isFull ? "FAILED" : "ACCEPTED"])
        bed.disk.take(
            requested.filter {
                if case .durable(.storeRequest(DurableID(rawValue: 2), _, _, _)) = $0 { true } else { false }
            })
        bed.pass()
        #expect(verbs(of: bed, ids[1]) == [isFull ? "FAILED" : "ACCEPTED"])
        // The client received neither reply.
        bed.pass { $0.core.clientLost(ids[1], now: $0.now) }
        bed.pass { rig in
            rig.connect(ids[2])
            rig.send(.hello(hello), by: ids[2])
        }
        #expect(verbs(of: bed, ids[2]) == ["WELCOME"] + Array(repeating: isFull ? "FAILED" : "ACCEPTED", count: 2))
    }

    private func verbs(of bed: DurableBed, _ client: ClientID) -> [String] {
        let plain = bed.rig.replies(to: client).map { String(decoding: $0.encoded().prefix { $0 > 32 }, as: UTF8.self) }
        return plain + bed.rig.answers(to: client).map { String($0.split(separator: " ")[1]) }
    }
}
