internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot watch`: prints the results of a handler.
struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Print the results of a handler, or of all handlers below NAME/.",
        discussion: """
            Prints a line for each result: handler, ID, status or code, URL, and the file with -d. Reports on standard \
            error when it listens. Runs until it is interrupted, or until it has printed --count results.

            A result is acknowledged once its line is printed and, with -d, its body is written. If either fails, the \
            command ends with 23. The result of a durable request then stays on the broker's disk for the next watch.

            The first acknowledgement of a durable result removes it from that disk. Therefore a durable result with a \
            body needs -d DIR to keep the body or --discard to drop it. Without either, the command ends with 64 and \
            acknowledges nothing of it.
            """)

    @Argument(help: "HANDLER, or HANDLER/ for all below it.")
    var handler: HandlerPattern

    @Option(help: "End after this many results.")
    var count: Int?

    @Flag(help: "Print each result as a line of JSON.")
    var json = false

    @Option(
        name: .shortAndLong, help: "Directory for the bodies; created if it does not exist.", completion: .directory)
    var directory: String?

    @Flag(help: "Acknowledge durable results without keeping their bodies.")
    var discard = false

    @OptionGroup var failure: FailureOptions
    @OptionGroup var place: PlaceOptions

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count is at least 1") }
        guard directory == nil || !discard else { throw ValidationError("give --directory or --discard, not both") }
    }

    func run() throws {
        try conclude {
            var tally = Tally()
            var destination = Destination.nowhere()
            // An unprinted result stays unacknowledged, so the broker redelivers a durable one to the next subscriber.
            let session = try BusSession.find(in: place.folder(), client: "watch", finishesNone: true) {
                session, event in
                switch event {
                case .terminal(let delivery, let body):
                    guard tally.total < count ?? .max, session.complaint == nil else { return }
                    do {
                        tally.count(try tell(delivery, body, &destination, session))
                        session.connection.finish(delivery)
                    } catch let complaint as Complaint {
                        // The event of the signal follows.
                        if complaint.status != .interrupted { session.end(complaint) }
                    } catch {
                        session.end(Complaint(.other, "\(error)"))
                    }
                case .answer: Complaint.say("listening to \(handler)")
                case .refused(let reply):
                    session.end(Complaint(.other, "\(reply.detail ?? "refused") (\(reply.code))"))
                case .accepted, .progress, .cancelled, .removed, .changed, .state: break
                }
            }
            if let directory { destination = try .folder(directory, interrupt: session.signalDescriptor) }
            session.connection.subscribe(handler)
            session.connection.query(.ping)
            try session.run { tally.total >= count ?? .max }
            return tally.status
        }
    }

    /// Writes the body and prints the line of a result.
    ///
    /// - Throws: `Complaint` if the result must not be acknowledged.
    private func tell(
        _ delivery: Delivery, _ body: [UInt8], _ destination: inout Destination, _ session: BusSession
    ) throws(Complaint) -> FetchOutcome {
        let terminal = delivery.terminal
        var outcome = FetchOutcome(url: terminal.response?.url ?? "-", terminal)
        if outcome.code == nil {
            let file = terminal.response?.file.map {
                Destination.Body.file($0, length: terminal.response?.length ?? 0, isOwn: false)
            }
            let name = "\(delivery.key.handler) \(delivery.key.request)"
            let stays = terminal.isDurable ? "; the result stays on the broker's disk" : ""
            if terminal.isDurable, directory == nil, !discard, file != nil || !body.isEmpty {
                let sentence =
                    "\(name) is the result of a durable request and has a body: give -d DIR to keep the body, or "
                    + "--discard to drop it" + stays
                throw Complaint(.usage, sentence)
            }
            do throws(Destination.Failure) {
                outcome.path = try destination.write(
                    file ?? .bytes(body), of: outcome.url, flushed: terminal.isDurable)
            } catch {
                outcome.code = FetchOutcome.writeFailed
                switch error {
                case .interrupted: throw Complaint(.interrupted)
                case .cannotWrite(let sentence): outcome.detail = sentence
                case .lostSource, .broken: outcome.detail = "its file in the spool is gone"
                }
                let sentence = "\(name) \(outcome.sentence(verbosely: failure.verbose))"
                // A restarting broker empties its spool. Only the results of before are lost, so the command continues.
                guard case .lostSource = error, !terminal.isDurable else {
                    throw Complaint(.cannotWrite, sentence + stays)
                }
                Complaint.say(sentence)
            }
        }
        let line = json ? jsonLine(delivery, outcome) : plainLine(delivery, outcome)
        try StandardOutput(interrupt: session.signalDescriptor).write(line)
        return outcome
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
