import EarshotDisk
import EarshotLoop
import Testing

/// The thread of a store: changes that the disk rejects are tried again.
struct StoreThreadTests {
    /// A keeper that rejects the first attempts.
    private final class Backend: StoreBackend {
        private let attempts: Mailbox<[Int]>
        private var rejections = 2
        var hasPendingWork = false

        init(_ attempts: Mailbox<[Int]>) { self.attempts = attempts }

        func carryOut(_ requests: [Int]) {
            hasPendingWork = rejections > 0
            rejections -= 1
            attempts.put(requests)
        }
    }

    @Test func `a rejected change is tried again after the pause, until it succeeds`() throws {
        let attempts = try Mailbox<[Int]>()
        let loop = try EventLoop()
        var seen: [[Int]] = []
        let thread = StoreThread("test", retryPauseMilliseconds: 1) { Backend(attempts) }
        _ = try loop.add(attempts.descriptor, .readable) { _ in seen += attempts.takeAll() }
        thread.submit(7)
        try loop.run { seen.count == 3 }
        #expect(seen == [[7], [], []])
        thread.finish()
        #expect(attempts.takeAll().isEmpty)
    }
}
