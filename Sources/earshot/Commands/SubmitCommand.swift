internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot submit`: sends requests without waiting for the results.
struct SubmitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "submit",
        abstract: "Ask for URLs under a handler and do not wait; `earshot watch` hears what becomes of them.",
        discussion: """
            Prints the handler and the ID of each, once the broker has taken them. If nobody listens to the handler, \
            a result is kept for some seconds only.

            With --durable a request is on the disk before its line is printed. It outlives this command and the broker. \
            Its result waits for `earshot watch -d DIR HANDLER` or another program, for as long as `durable-time` says. \
            Ctrl-C leaves the requests as they are; `earshot drop` and `earshot cancel` remove them.
            """)

    @Argument(help: "What to fetch.", completion: ShellCompletion.none)
    var urls: [String]

    @Option(help: "The handler it is asked under; one of its own if not given.")
    var handler: HandlerID?

    @Option(help: "The request's ID, for one URL; one of its own if not given.")
    var id: RequestID?

    @Flag(help: "Deliver no body.")
    var warm = false

    @Flag(help: "Keep the request on the disk until somebody has taken its result; for GET and HEAD.")
    var durable = false

    @OptionGroup var request: RequestOptions
    @OptionGroup var failure: FailureOptions
    @OptionGroup var place: PlaceOptions

    func validate() throws {
        guard id == nil || urls.count == 1 else { throw ValidationError("--id is for one URL") }
    }

    func run() throws {
        try conclude {
            let mark = String(UInt32.random(in: 0 ... .max), radix: 16)
            guard let handler = handler ?? HandlerID("submit/\(getpid())-\(mark)") else {
                throw Complaint(.other, "no handler")
            }
            let body = try self.request.body()
            var tally = Tally()
            var refused: Set<RequestID> = []
            var accepted: Set<RequestID> = []
            var isTaken = false
            let session = try BusSession.find(in: place.folder(), client: "submit") { session, event in
                switch event {
                case .answer: isTaken = true
                case .accepted(let key) where key.handler == handler: accepted.insert(key.request)
                case .terminal(let delivery, _) where delivery.key.handler == handler:
                    // Without a subscription a terminal arrives only for a rejected request.
                    let outcome = FetchOutcome(url: delivery.key.request.description, delivery.terminal)
                    Complaint.say(outcome.sentence(verbosely: true))
                    if refused.insert(delivery.key.request).inserted { tally.count(outcome) }
                    session.connection.finish(delivery)
                case .refused(let reply):
                    let sentence = "\(reply.detail ?? "refused") (\(reply.code))"
                    guard let request = reply.request else { return session.end(Complaint(.other, sentence)) }
                    Complaint.say("\(handler) \(request): \(sentence)")
                    let outcome = FetchOutcome(url: request.description, code: reply.code, detail: sentence)
                    if refused.insert(request).inserted { tally.count(outcome) }
                case .accepted, .terminal, .progress, .cancelled, .removed, .changed, .state: break
                }
            }
            var asked: [RequestID] = []
            for (index, url) in urls.map(URLText.percentEncoded).enumerated() {
                guard let name = id ?? RequestID("\(mark)-\(index + 1)") else { continue }
                guard let text = URLText.wire(url) else {
                    let detail = "this is not a URL: it holds spaces or is too long"
                    let outcome = FetchOutcome(url: url, code: "malformed-url", detail: detail)
                    Complaint.say(outcome.sentence(verbosely: failure.verbose))
                    tally.count(outcome)
                    continue
                }
                var fetch = self.request.fetch(handler, name, text, body: body)
                fetch.options.subscribes = false
                fetch.options.isWarm = warm
                fetch.options.isDurable = durable
                try session.connection.fetch(fetch)
                asked.append(name)
            }
            session.connection.query(.ping)
            try session.run {
                isTaken && (!durable || asked.allSatisfy { accepted.contains($0) || refused.contains($0) })
            }
            let taken = asked.filter { !refused.contains($0) }
            tally.countSuccesses(taken.count)
            var lines = LineOutput()
            for name in taken { lines.add(Array("\(handler) \(name)\n".utf8)) }
            lines.flush()
            if let obstacle = lines.obstacle { throw Self.complaint(obstacle, handler, taken.count) }
            return tally.status
        }
    }

    /// Complaint about an output error after the broker has accepted the requests.
    private static func complaint(_ obstacle: Complaint, _ handler: HandlerID, _ count: Int) -> Complaint {
        guard let sentence = obstacle.sentence else { return obstacle }
        let state = "\(count) requests were submitted under \(handler): `earshot drop \(handler)` removes them"
        return Complaint(obstacle.status, "\(sentence); \(state)")
    }
}
