internal import EarshotCore
internal import EarshotLoop
internal import RESP

/// One connection to a server or sentinel for a few questions, each of which blocks until its answer.
final class EngineProbe {
    /// Time limit for the connection, and for each answer.
    private static let timeLimit = Duration.seconds(3)

    private let loop: EventLoop
    private let stream: EngineStream
    private var isOpen = false
    private var replies: [Reply] = []
    private var engineFault: EngineFault?

    /// Connects, and logs in.
    init(_ address: EngineAddress, login: EngineOptions.Login? = nil, on loop: EventLoop) throws(EngineFault) {
        self.loop = loop
        stream = EngineStream(loop)
        stream.open(address)
        try runLoop { $0.isOpen }
        guard let login else { return }
        if case .error(let text) = try reply(to: login.authenticationCommand) {
            throw EngineFault(error: text, isAuthentication: true)
        }
    }

    /// Returns the reply to a command, which may be an error.
    func reply(to command: Command) throws(EngineFault) -> Reply {
        stream.append(command)
        stream.flush()
        try runLoop { !$0.replies.isEmpty }
        return replies.removeFirst()
    }

    /// Returns the reply to a command.
    ///
    /// - Throws: `EngineFault`, including for an error of the server.
    func callThrowingErrors(_ words: String...) throws(EngineFault) -> Reply {
        var command = Command()
        for word in words { command.append(word) }
        let reply = try reply(to: command)
        if case .error(let text) = reply { throw EngineFault(error: text, isAuthentication: false) }
        return reply
    }

    /// Returns a section of INFO.
    func serverInfo(section: String) throws(EngineFault) -> ServerInfo {
        guard let info = ServerInfo(try callThrowingErrors("INFO", section)) else { throw .malformedReply }
        return info
    }

    private func runLoop(until isDone: (EngineProbe) -> Bool) throws(EngineFault) {
        let hasEnded: Bool
        do throws(SystemError) {
            hasEnded = try loop.run(for: Self.timeLimit) {
                takeStreamEvents()
                return engineFault != nil || isDone(self)
            }
        } catch {
            throw .unreachable("\(error)")
        }
        if isDone(self) { return }
        throw hasEnded ? engineFault ?? .connectionClosed : .timedOut
    }

    private func takeStreamEvents() {
        for event in stream.takeEvents() {
            switch event {
            case .opened: isOpen = true
            case .reply(let reply): replies.append(reply)
            case .closed(let fault): engineFault = fault
            }
        }
    }
}
