internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot watch`: hears a handler's results.
struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Hear what becomes of a handler's requests (or with a slash at its end of all below it).",
        discussion: """
            Prints a line for each: handler, ID, status or code, URL, and the file with -d. Says on standard error \
            when it listens. It goes on until it is interrupted, or has heard --count of them.
            """)

    @Argument(help: "HANDLER, or HANDLER/ for all below it.")
    var handler: HandlerPattern

    @Option(help: "End after so many.")
    var count: Int?

    @Flag(help: "A line of JSON for each.")
    var json = false

    @Option(name: .shortAndLong, help: "The folder to write bodies to, made if it is not there.")
    var directory: String?

    @OptionGroup var failure: FailureOptions
    @OptionGroup var place: PlaceOptions

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count is at least 1") }
    }

    func run() throws {
        try conclude {
            var heard = 0
            var destination = Destination.nowhere()
            // What was not told is not acknowledged: a durable result goes to who hears it next.
            let session = try BusSession.find(in: place.folder(), client: "watch", finishesNone: true) {
                session, event in
                switch event {
                case .terminal(let delivery, let body):
                    guard heard < count ?? .max else { return }
                    heard += 1
                    tell(delivery, body, &destination, session)
                case .answer: Complaint.say("listening to \(handler)")
                case .refused(let reply):
                    session.end(Complaint(.other, "\(reply.detail ?? "refused") (\(reply.code))"))
                case .accepted, .progress, .cancelled, .removed, .changed, .state: break
                }
            }
            if let directory { destination = try .folder(directory, interrupt: session.signalDescriptor) }
            session.connection.subscribe(handler)
            session.connection.query(.ping)
            try session.run { heard >= count ?? .max }
            return .done
        }
    }

    private func tell(
        _ delivery: Delivery, _ body: [UInt8], _ destination: inout Destination, _ session: BusSession
    ) {
        var outcome = FetchOutcome(url: delivery.terminal.response?.url ?? "-", delivery.terminal)
        if outcome.code == nil {
            do throws(Destination.Failure) {
                let response = delivery.terminal.response
                let source = response?.file.map {
                    Destination.Body.file($0, length: response?.length ?? 0, isOwn: false)
                }
                outcome.path = try destination.write(source ?? .bytes(body), of: outcome.url)
            } catch {
                // The signal's own event follows.
                if case .interrupted = error { return }
                outcome.code = FetchOutcome.writeFailed
                if case .cannotWrite(let sentence) = error { outcome.detail = sentence }
                Complaint.say(outcome.sentence(verbosely: failure.verbose))
            }
        }
        let line = json ? jsonLine(delivery, outcome) : plainLine(delivery, outcome)
        switch Output(STDOUT_FILENO, interrupt: session.signalDescriptor).write(line) {
        case .done: session.connection.finish(delivery)
        case .interrupted, .short: break
        case .broken, .failed: session.end(Complaint(.cannotWrite))
        }
    }

    private func jsonLine(_ delivery: Delivery, _ outcome: FetchOutcome) -> [UInt8] {
        var line = JSONLine()
        line.member("handler", delivery.key.handler.description)
        line.member("request", delivery.key.request.description)
        outcome.write(to: &line)
        return line.finished()
    }

    private func plainLine(_ delivery: Delivery, _ outcome: FetchOutcome) -> [UInt8] {
        var words = [delivery.key.handler.description, delivery.key.request.description]
        words.append(outcome.code ?? outcome.status.map { String($0) } ?? "-")
        words.append(outcome.code == nil || failure.verbose ? outcome.url : URLText.discreet(outcome.url))
        if let path = outcome.path { words.append(path) }
        return Array((TerminalText.escaped(words.joined(separator: " ")) + "\n").utf8)
    }
}
