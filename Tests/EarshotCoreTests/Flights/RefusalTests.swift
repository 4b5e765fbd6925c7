import EarshotWire
import Testing

@testable import EarshotCore

/// Refusals of requests at the bounds of their number.
struct RefusalTests {
    private static let bounds: [@Sendable (inout CoreLimits) -> Void] = [
        { $0.maximumOpenRequests = 2 }, { $0.maximumOpenRequestsPerClient = 2 },
        { $0.maximumOpenRequestsPerHandler = 2 },
    ]

    @Test(arguments: 0..<3)
    func `requests beyond each bound of their number are refused as queue-full`(bound: Int) {
        var limits = CoreLimits()
        #expect(limits.maximumOpenRequests == 2_000_000)
        #expect(limits.maximumOpenRequestsPerClient == 1_000_000 && limits.maximumOpenRequestsPerHandler == 1_000_000)
        Self.bounds[bound](&limits)
        var rig = CoreRig(limits: limits)
        let client = rig.client(1)
        rig.pass { rig in
            for number in 1...3 { rig.fetch("h", "\(number)", "http://h/\(number)", by: client) }
        }
        #expect(rig.terminals(for: client) == ["h 3 queue-full"])
        #expect(rig.core.ledger.requests.pending == 2)
        rig.pass { $0.remove("h", "1", by: client) }
        rig.pass { $0.fetch("h", "4", "http://h/4", by: client) }
        #expect(rig.terminals(for: client) == [] && rig.core.ledger.requests.pending == 2)
        #expect(rig.core.audit() == [])
    }
}
