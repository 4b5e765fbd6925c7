import EarshotCore
import EarshotLoop
import Logging
import Testing

@testable import EarshotBroker

/// Places of the broker that cannot be written.
@Suite struct PathWatchTests {
    /// State of a place, and the faults that were reported.
    private final class Record {
        var obstacle: String?
        var faults: [[PathFault]] = []
    }

    @Test func `a place that cannot be written is a fault until it can be`() throws {
        let record = Record()
        let place = PathWatch.WatchedPath(name: "spool", path: "/spool") {
            true
        } obstacle: {
            record.obstacle
        } makeAgain: {
            Issue.record("it is in place")
        }
        let watchedPaths = try PathWatch(
            [place], loop: try EventLoop(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            watchAll: { _ in },
            onChange: { record.faults.append($0) })
        watchedPaths.look()
        #expect(record.faults.isEmpty)
        record.obstacle = "read-only"
        watchedPaths.look()
        watchedPaths.look()
        #expect(record.faults.map { $0.map(\.reason) } == [["read-only"]])
        record.obstacle = nil
        watchedPaths.look()
        #expect(record.faults.last?.map(\.reason) == [nil])
        #expect(record.faults.last?.map(\.count) == [1])
    }
}
