internal import DequeModule
internal import EarshotWire

/// Buffer of results between the loop and the reader of a watch.
final class WatchState: Sendable {
    /// Maximum unread results. Each body that is a file holds a descriptor.
    static let mostUnread = 64

    private struct Buffer {
        var unreadResults = Deque<WatchedRequest>()
        /// Whether the connection is paused until the buffer has room.
        var isPaused = false
        var failure: (any Error)?
    }

    let pattern: HandlerPattern
    /// Whether the reader acknowledges results.
    let isClaim: Bool
    private let buffer = Observed(Buffer())

    init(_ pattern: HandlerPattern, isClaim: Bool = false) {
        self.pattern = pattern
        self.isClaim = isClaim
    }

    /// Error that ended the watch; nil while it runs.
    var failure: (any Error)? { buffer.current.value.failure }

    /// Number of unread results.
    var count: Int { buffer.current.value.unreadResults.count }

    /// Adds a result.
    ///
    /// - Returns: whether the buffer is full, so that the connection must pause. It still accepts results in flight.
    func put(_ ending: WatchedRequest) -> Bool {
        buffer.change { buffer in
            buffer.unreadResults.append(ending)
            // Stays set until `next` makes room.
            buffer.isPaused = buffer.isPaused || buffer.unreadResults.count >= Self.mostUnread
            return buffer.isPaused
        }
    }

    /// Ends the watch with an error, after the buffered results.
    func fail(_ error: any Error) { buffer.change { $0.failure = $0.failure ?? error } }

    /// Waits for the next result. Calls `resume` when the buffer has room again.
    func next(isolation actor: isolated (any Actor)?, resume: () -> Void) async throws -> WatchedRequest {
        while true {
            try Task.checkCancellation()
            let version = buffer.current.version
            let (ending, failure, hasRoom) = buffer.changeQuietly { buffer in
                let ending = buffer.unreadResults.popFirst()
                let hasRoom = buffer.isPaused && buffer.unreadResults.count <= Self.mostUnread / 2
                if hasRoom { buffer.isPaused = false }
                return (ending, buffer.failure, hasRoom)
            }
            if hasRoom { resume() }
            if let ending { return ending }
            if let failure { throw failure }
            await buffer.changed(since: version)
        }
    }
}
