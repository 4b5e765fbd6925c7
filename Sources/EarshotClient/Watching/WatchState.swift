internal import DequeModule
internal import EarshotWire

/// What a watcher has been told and has not read, on its way from the loop to a task.
final class WatchState: Sendable {
    /// Bodies that are files each hold a descriptor here.
    static let most = 64

    private struct Buffer {
        var endings = Deque<WatchedRequest>()
        /// Whether the connection waits for room here.
        var isPaused = false
        var failure: (any Error)?
    }

    let pattern: HandlerPattern
    /// Whether its reader acknowledges what it takes.
    let isClaim: Bool
    private let buffer = Observed(Buffer())

    init(_ pattern: HandlerPattern, isClaim: Bool = false) {
        self.pattern = pattern
        self.isClaim = isClaim
    }

    /// Why nothing comes any more; nil if something may.
    var failure: (any Error)? { buffer.current.value.failure }

    /// How many wait to be read.
    var count: Int { buffer.current.value.endings.count }

    /// Puts one in.
    ///
    /// - Returns: whether there is no more room: what comes then is taken, and the rest has to wait for `resume`.
    func put(_ ending: WatchedRequest) -> Bool {
        buffer.change { buffer in
            buffer.endings.append(ending)
            // Until `next` makes room: what else comes by then changes nothing.
            buffer.isPaused = buffer.isPaused || buffer.endings.count >= Self.most
            return buffer.isPaused
        }
    }

    /// Nothing comes any more.
    func fail(_ error: any Error) { buffer.change { $0.failure = $0.failure ?? error } }

    /// The next; waits for it. Calls `resume` when there is room again.
    func next(isolation actor: isolated (any Actor)?, resume: () -> Void) async throws -> WatchedRequest {
        while true {
            try Task.checkCancellation()
            let version = buffer.current.version
            let (ending, failure, hasRoom) = buffer.changeQuietly { buffer in
                let ending = buffer.endings.popFirst()
                let hasRoom = buffer.isPaused && buffer.endings.count <= Self.most / 2
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
