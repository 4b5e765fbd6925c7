import EarshotWire
import Testing

@testable import EarshotCore

/// Weighted sharing between classes, and round robin between programs regardless of their queue lengths.
struct FairShareTests {
    /// A bus without a free slot, whose jobs end one after the other.
    private struct FullBus {
        var rig: CoreRig
        private let worker: WorkerID
        private var running: [Job] = []

        init(slots: Int = 8, originLimit: Int = 1_000, requesting: (inout CoreRig) -> Void) {
            var limits = CoreLimits()
            limits.originRules.defaultMaximumTransfers = originLimit
            rig = CoreRig(limits: limits)
            rig.pass(requesting)
            worker = rig.worker(slots: slots)
            rig.pass()
            running = rig.jobs
        }

        /// The URLs of the next jobs in the order of their starts.
        mutating func starts(_ count: Int) -> [String] {
            var urls: [String] = []
            while urls.count < count, !running.isEmpty {
                let job = running.removeFirst()
                let worker = worker
                rig.pass { $0.done(job, by: worker) }
                running += rig.jobs
                urls += rig.jobs.map(\.url)
            }
            return urls
        }
    }

    private static func submit(
        _ count: Int, _ priority: PriorityClass, of origin: String, by client: ClientID, root: String? = nil,
        _ rig: inout CoreRig
    ) {
        for number in 0..<count {
            rig.fetch(root ?? priority.name, "\(number)", "http://\(origin)/\(priority.name)/\(number)", by: client) {
                $0.options.priority = priority
            }
        }
    }

    @Test(
        "A queue of high does not keep low from its share of the starts, 4 of 68",
        arguments: [("one", "other", 1_000), ("one", "one", 1_000), ("one", "one", 6)])
    func starvation(high: String, low: String, originLimit: Int) {
        var bus = FullBus(originLimit: originLimit) { rig in
            let a = rig.client(1, window: 4_096)
            Self.submit(2_000, .high, of: high, by: a, &rig)
            Self.submit(200, .low, of: low, by: a, &rig)
        }
        let starts = bus.starts(1_700)
        #expect(starts.count == 1_700)
        #expect(abs(starts.count { $0.contains("/low/") } - 100) <= 1)
    }

    @Test("Each class has its share while all wait")
    func shares() {
        var bus = FullBus { rig in
            let a = rig.client(1, window: 4_096)
            for priority in PriorityClass.allCases { Self.submit(2_000, priority, of: "origin", by: a, &rig) }
        }
        let starts = bus.starts(1_700)
        for (priority, share) in [(PriorityClass.high, 1_280), (.normal, 320), (.low, 80), (.background, 20)] {
            let count = starts.count { $0.contains("/\(priority.name)/") }
            #expect(abs(count - share) <= 1, "\(priority.name): \(count)")
        }
    }

    @Test("A quarter of the slots is free of all but high, however much of that there is")
    func reserve() {
        var bus = FullBus(slots: 16) { rig in
            let a = rig.client(1, window: 4_096)
            Self.submit(1_000, .normal, of: "origin", by: a, &rig)
        }
        #expect(bus.rig.core.runningAttemptCount == 12)
        bus.rig.pass { rig in
            let b = rig.client(2, window: 4_096)
            Self.submit(4, .high, of: "origin", by: b, &rig)
        }
        #expect(bus.rig.jobs.count == 4)
    }

    @Test("Ten requests of one program are started within 20 turns beside 1,000 of another", arguments: [0, 1])
    func roots(smallComesFirst: Int) {
        var bus = FullBus { rig in
            let a = rig.client(1, window: 4_096)
            let b = rig.client(2, window: 4_096)
            if smallComesFirst == 1 { Self.submit(20, .low, of: "small", by: b, root: "small", &rig) }
            Self.submit(1_000, .low, of: "large", by: a, root: "large", &rig)
            if smallComesFirst == 0 { Self.submit(20, .low, of: "small", by: b, root: "small", &rig) }
        }
        #expect(bus.starts(20).count { $0.hasPrefix("http://small/") } == 10)
    }
}
