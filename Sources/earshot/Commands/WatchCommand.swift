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
        usage: "earshot watch [<options>] <handler>",
        discussion: """
            Prints one line per result: handler, ID, HTTP status or failure code, URL, and with -d the file. The URL has no \
            user information and query, except with -v and --json. A message on standard error confirms the subscription. \
            Ends with Ctrl-C, after --count results, or with --until-done when no request of the handler is pending.

            A result is acknowledged after its line is printed and, with -d, its body is written. If either fails, the \
            command ends with exit code 23, and a durable result stays on disk for the next `earshot watch`. A durable \
            result with a body needs -d DIR or --discard. It replaces no file: `name-2.ext` resolves a collision with a \
            file of other content.

            --exec runs a program for each result, at most 4 at once and 5 minutes each. The result is acknowledged after \
            the program has ended. Its environment has EARSHOT_HANDLER, EARSHOT_REQUEST, EARSHOT_URL, EARSHOT_STATE \
            (done or failed), EARSHOT_STATUS, EARSHOT_CAUSE, EARSHOT_FILE, EARSHOT_LENGTH and EARSHOT_SHA256.

              earshot watch gallery/
              earshot watch -d out --count 2 night/backup
              earshot watch -d out --exec 'gzip -k {}' night/
            """)

    @Argument(help: "Handler, or NAME/ for all handlers below NAME.")
    var handler: HandlerPattern

    @OptionGroup(title: "Output") var target: WatchOptions
    @OptionGroup(title: "Output") var hook: HookOptions
    @OptionGroup(title: "Output") var failure: FailureOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    /// Maximum time without a broker for --until-done, which may run in the background while the bus is restarted.
    private static let brokerAbsenceTimeout = Duration.seconds(3_600)

    private var count: Int? { target.count }
    private var json: Bool { target.json }
    private var directory: String? { target.directory }
    private var discard: Bool { target.discard }

    func validate() throws {
        try PathCheck.check([("--directory", directory)])
        if let count, count < 1 { throw ValidationError("--count: give a number of at least 1") }
        guard directory == nil || !discard else {
            throw ValidationError("--directory and --discard exclude each other; give one of them")
        }
    }

    func run() throws {
        if target.notedLog != nil { CommandError.enableJSONMessages() }
        try runAndExit {
            let lock: BackgroundLock?
            switch target.acquireBackgroundLock(handler, hook.exec, try place.busLocation()) {
            case .acquired(let taken): lock = taken
            case .otherProcessWaits: return .success
            }
            var tally = Tally()
            var destination = Destination.nowhere()
            var hooks: HookRuns?
            let program = try hook.program()
            let pending = target.untilDone ? PendingCount(handler) : nil
            // An unprinted result stays unacknowledged, so the broker redelivers a durable one to the next subscriber.
            let session = try BusSession.connect(
                to: place.busLocation(), answerTimeout: target.untilDone ? Self.brokerAbsenceTimeout : nil,
                consumerFinishesDeliveries: true, keepsFailures: target.keepFailures
            ) { session, event in
                switch event {
                case .terminal(let delivery, let body):
                    guard tally.totalCount < count ?? .max, session.commandError == nil else { return }
                    do {
                        let outcome = try report(delivery, body, &destination, session)
                        tally.countOutcome(outcome)
                        let finish = { [unowned session] in
                            session.connection.finishDelivery(delivery)
                            let isKept = target.keepFailures && outcome.isFailureKept(delivery.terminal)
                            pending?.requestEnded(delivery.key, isFailureKept: isKept)
                            pending?.resultArrived(session)
                        }
                        if let hooks { hooks.enqueue(outcome, delivery.key, onEnd: finish) } else { finish() }
                    } catch let commandError as CommandError {
                        // The event of the signal follows.
                        if commandError.status != .interrupted { session.end(with: commandError) }
                    } catch {
                        session.end(with: CommandError(.generalError, "\(error)"))
                    }
                case .queryAnswer(.ping, _): CommandError.writeMessage("listening to \(handler)")
                case .queryAnswer(let query, let json): pending?.handleAnswer(query, json, session)
                case .state(.connected): pending?.query(session)
                case .messageRefused(let reply): session.end(with: .refused(reply))
                case .accepted, .progress, .cancelled, .removed, .settingChanged, .state: break
                }
            }
            if let directory { destination = try .folder(directory, interrupt: session.signalDescriptor) }
            session.connection.bodyFolder = destination.bodyFolder
            hooks = program.map { HookRuns($0, session.loop) { CommandError.writeMessage($0) } }
            defer { hooks?.stop() }
            session.connection.subscribe(handler)
            session.connection.query(.ping)
            pending?.query(session)
            try session.run {
                hooks?.count ?? 0 == 0 && (tally.totalCount >= count ?? .max || pending?.isZero(session) == true)
            }
            if pending?.hasKeptFailures == false { lock?.removeFile() }
            return tally.status
        }
    }

    /// Writes the body and prints the line of a result.
    ///
    /// - Throws: `CommandError` if the result must not be acknowledged.
    private func report(
        _ delivery: DeliveredTerminal, _ body: [UInt8], _ destination: inout Destination, _ session: BusSession
    ) throws(CommandError) -> FetchOutcome {
        let terminal = delivery.terminal
        var outcome = FetchOutcome(url: terminal.url ?? "-", terminal)
        if let number = delivery.storeFailure {
            outcome.recordStoreFailure(number)
            let name = "\(delivery.key.handler) \(delivery.key.request)"
            throw CommandError(.cannotWrite, "\(name) \(outcome.sentence(verbosely: failure.verbose))")
        }
        if outcome.code == nil {
            let name = "\(delivery.key.handler) \(delivery.key.request)"
            let stays = terminal.isDurable ? "; the result stays on the broker's disk" : ""
            if terminal.isDurable, directory == nil, !discard, terminal.response?.bodyFilePath != nil || !body.isEmpty {
                let sentence =
                    "\(name) is a durable result with a body; give -d DIR to store the body, or --discard to drop it"
                    + stays
                throw CommandError(.usageError, sentence)
            }
            do throws(OutputFailure) {
                let body = OutputBody(of: delivery, body)
                outcome.path =
                    terminal.isDurable
                    ? try destination.keepBody(body, of: outcome.url, sha256: outcome.response?.sha256)
                    : try destination.write(body, of: outcome.url)
            } catch {
                outcome.code = FetchOutcome.writeFailedCode
                switch error {
                case .interrupted: throw CommandError(.interrupted)
                case .cannotWrite(let sentence): outcome.detail = sentence
                case .sourceLost, .readerClosed: outcome.detail = "its spool file is missing"
                }
                let sentence = "\(name) \(outcome.sentence(verbosely: failure.verbose))"
                // A restarting broker empties its spool. Only earlier results are lost, so the command continues.
                guard case .sourceLost = error, !terminal.isDurable else {
                    throw CommandError(.cannotWrite, sentence + stays)
                }
                CommandError.writeMessage(sentence)
            }
        }
        let line = json ? jsonLine(delivery, outcome) : plainLine(delivery, outcome)
        try StandardOutput(interrupt: session.signalDescriptor).write(line)
        return outcome
    }

    private func jsonLine(_ delivery: DeliveredTerminal, _ outcome: FetchOutcome) -> [UInt8] {
        var line = JSONLine()
        line.appendMember("handler", delivery.key.handler.description)
        line.appendMember("request", delivery.key.request.description)
        outcome.write(to: &line)
        return line.finishedLine()
    }

    private func plainLine(_ delivery: DeliveredTerminal, _ outcome: FetchOutcome) -> [UInt8] {
        var words = [delivery.key.handler.description, delivery.key.request.description]
        words.append(outcome.code ?? outcome.status.map { String($0) } ?? "-")
        words.append(failure.verbose ? outcome.url : URLText.redacted(outcome.url))
        if let path = outcome.path { words.append(path) }
        return Array((TerminalText.escaped(words.joined(separator: " ")) + "\n").utf8)
    }
}

/// Options for the output of results.
struct WatchOptions: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp("Write each body to a file in this directory; created if missing.", valueName: "dir"),
        completion: .directory)
    var directory: String?

    @Flag(help: "Acknowledge durable results without storing their bodies.")
    var discard = false

    @Option(help: ArgumentHelp("Exit after this many results.", valueName: "n"))
    var count: Int?

    @Flag(help: "Exit when no request of the handler is pending.")
    var untilDone = false

    @Flag(help: "Leave durable failures on disk, where `earshot retry` repeats them.")
    var keepFailures = false

    @Flag(help: "Print each result as a line of JSON.")
    var json = false

    /// Path of the log of a watch that `submit` or `retry` has started, to be noted for `retry`; empty without a log.
    @Option(help: .private, completion: ShellCompletion.noCompletion)
    var notedLog: String?

    /// Whether this process may begin to write the bodies.
    enum BackgroundLockResult {
        /// It may. The lock is nil without a record.
        case acquired(BackgroundLock?)
        /// It may not: another process waits already, and will see all present requests.
        case otherProcessWaits
    }

    /// Records a watch in the background, and waits until no other process with the same record runs.
    func acquireBackgroundLock(
        _ handler: HandlerPattern, _ exec: HookProgram?, _ place: BusLocation
    ) -> BackgroundLockResult {
        guard let notedLog, let directory else { return .acquired(nil) }
        let record = BackgroundRecord(
            bus: place.arguments, handler: handler.description, directory: directory, log: notedLog,
            exec: exec?.optionText ?? "")
        guard let path = record.path else { return .acquired(nil) }
        do {
            return try BackgroundLock.acquire(record, at: path).map { .acquired($0) } ?? .otherProcessWaits
        } catch {
            CommandError.writeMessage("`earshot retry` cannot start this command again: \(error)")
            return .acquired(nil)
        }
    }
}
