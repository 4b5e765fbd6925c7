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
        var faults: [[PathFailure]] = []
    }

    @Test func `a place that cannot be written is a fault until it can be`() throws {
        let record = Record()
        let place = PathWatch.WatchedPath(name: "spool", path: "/spool") {
            true
        } unusableReason: {
            record.obstacle
        } recreatePath: {
            Issue.record("it is in place")
        }
        let watchedPaths = try PathWatch(
            [place], loop: try EventLoop(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            addWatches: { _ in },
            onChange: { record.faults.append($0) })
        watchedPaths.checkPaths()
        #expect(record.faults.isEmpty)
        record.obstacle = "read-only"
        watchedPaths.checkPaths()
        watchedPaths.checkPaths()
        #expect(record.faults.map { $0.map(\.failureReason) } == [["read-only"]])
        record.obstacle = nil
        watchedPaths.checkPaths()
        #expect(record.faults.last?.map(\.failureReason) == [nil])
        #expect(record.faults.last?.map(\.lossCount) == [1])
    }
}
