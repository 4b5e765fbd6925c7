internal import ArgumentParser
internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire

/// `earshot retry`: repetition of failed durable requests.
struct RetryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retry",
        abstract: "Repeat the failed durable requests of a handler.",
        usage: "earshot retry [<options>] <handler> [<id> ...]",
        discussion: """
            Repeats the requests whose failures wait on disk for a subscriber, as `earshot list --state failed` shows them. \
            They keep their options. A failure that a subscriber has acknowledged is gone, such as one that \
            `earshot watch` has printed; --keep-failures prevents this.

            Requests of `earshot submit -d` keep their directory, too: a process in the background writes the bodies to \
            it, as after `submit`. Other results wait for `earshot watch`.

            A request that is not durable belongs to the command that made it. Repeat the failures of a list with \
            `earshot get -i LIST --failed FILE`, and then `earshot get -i FILE`.

              earshot retry night/backup              # all failures of the handler
              earshot retry --code timeout night/     # timeouts of handlers below night
              earshot retry night/backup 7 8          # two requests
            """)

    @Argument(
        help: "Handler, or NAME/ for all handlers below NAME.", completion: ShellCompletion.handlerPatterns)
    var handler: HandlerPattern

    @Argument(help: "Requests to repeat. (default: all that failed)", completion: ShellCompletion.noCompletion)
    var id: [RequestID] = []

    @Option(
        help: ArgumentHelp("Only requests that failed with this code; may be repeated.", valueName: "code"),
        completion: .list(FailureCode.allCases.map(\.rawValue)))
    var code: [String] = []

    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func validate() throws {
        guard !id.isEmpty else { return }
        if case .subtree = handler { throw ValidationError("requests have IDs under one handler; omit the slash") }
        guard code.isEmpty else { throw ValidationError("--code selects requests; omit it with IDs") }
    }

    func run() throws {
        try runAndExit {
            let keys = try selectedRequests()
            let retried = keys.isEmpty ? [] : try retry(keys)
            try StandardOutput().write(report(retried.count))
            guard !keys.isEmpty || code.isEmpty else {
                let codes = code.joined(separator: " or ")
                throw CommandError(.nothingMatched, "nothing matched: no failure of \(handler) has the code \(codes)")
            }
            try restartWatches(of: Set(retried.map(\.handler)))
            return retried.count < id.count ? .noInput : .success
        }
    }

    /// Returns the requests of the arguments, or those of the broker's list that failed.
    private func selectedRequests() throws -> [RequestKey] {
        if case .handler(let handler) = handler, !id.isEmpty { return id.map { RequestKey(handler, $0) } }
        var keys: [RequestKey] = []
        try PageQuery.forEachPage(
            .requests, "requests", filter: QueryPage(handler: handler, state: .awaitingSubscriber), in: place
        ) { answer in
            for row in RequestRow.rows(answer) {
                guard let failure = row.code, code.isEmpty || code.contains(failure) else { continue }
                if let key = row.key { keys.append(key) }
            }
            return true
        }
        return keys
    }

    /// Starts the processes again that write the bodies of `earshot submit -d`.
    private func restartWatches(of handlers: Set<HandlerID>) throws {
        guard !handlers.isEmpty else { return }
        let bus = try place.busLocation().arguments
        for record in BackgroundRecord.readAll() where handlers.contains(where: { record.coversHandler($0, on: bus) }) {
            try BackgroundWatch(record).start()
            CommandError.writeMessage("a process in the background writes the bodies to \(record.directory)")
        }
    }

    /// Repeats requests and returns those that the broker has accepted.
    private func retry(_ keys: [RequestKey]) throws -> [RequestKey] {
        var open = Set(keys)
        var repeated: [RequestKey] = []
        let session = try BusSession.connect(to: place.busLocation()) { session, event in
            switch event {
            case .accepted(let key): if open.remove(key) != nil { repeated.append(key) }
            case .messageRefused(let reply):
                guard let key = reply.key else { return session.end(with: .refused(reply)) }
                guard open.remove(key) != nil else { return }
                // A listed request that is not durable, or that a subscriber has taken meanwhile, is not counted.
                guard !id.isEmpty || reply.code != "unknown-request" else { return }
                CommandError.writeMessage("\(key.handler) \(key.request): \(CommandError.refused(reply))")
            case .terminal(let delivery, _):
                session.connection.finishDelivery(delivery)
                guard open.remove(delivery.key) != nil else { return }
                let outcome = FetchOutcome(url: delivery.key.request.description, delivery.terminal)
                session.end(with: CommandError(.cannotWrite, outcome.sentence(verbosely: true)))
            case .progress, .queryAnswer, .cancelled, .removed, .settingChanged, .state: break
            }
        }
        for key in open { session.connection.retry(key) }
        try session.run { open.isEmpty }
        return repeated
    }

    private func report(_ count: Int) -> [UInt8] {
        guard format.json else {
            return Array("repeated \(count) \(count == 1 ? "request" : "requests") of \(handler)\n".utf8)
        }
        var line = JSONLine()
        line.appendMember("handler", handler.description)
        line.appendMember("repeated", count)
        return line.finishedLine()
    }
}
