internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire

/// `earshot drain`: end of the bus after its requests.
struct DrainCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "drain",
        abstract: "Finish all requests of the bus, then stop it.",
        usage: "earshot drain [<options>]",
        discussion: """
            The bus accepts no new requests from then on: the setting admission becomes closed. Programs keep their new \
            requests for the next bus. Queued requests still start. After the last one, the bus stops as with \
            `earshot stop`.

            After --timeout the bus aborts its running transfers and stops with requests left. The exit code is then 28. \
            Ctrl-C ends the command and leaves admission closed.

              earshot drain --timeout 600
            """)

    /// Interval of the queries for the remaining work.
    private static let pollInterval = Duration.milliseconds(200)

    @OptionGroup var limit: WaitTimeoutOptions
    @OptionGroup(title: "Bus") var place: RuntimeOptions

    func run() throws {
        try runAndExit {
            let folder = try place.localRuntimeFolder(forCommand: "drain")
            let bus = try BusProcess(in: folder)
            let left = try waitUntilDrained(in: folder)
            try bus.stop(now: left != 0, limit: nil)
            guard left == 0 else {
                let count = left.map { "\($0) " } ?? ""
                throw CommandError(.timedOut, "timeout; the bus stopped with \(count)unfinished transfers")
            }
            return .success
        }
    }

    /// Closes admission, and waits until the bus has no work or the limit has passed.
    ///
    /// - Returns: number of flights that had not ended; nil if the limit passed before the broker named it.
    private func waitUntilDrained(in folder: RuntimeFolder) throws -> Int? {
        var left: Int?
        var isLate = false
        guard let setting = SettingWords([SettingName.admission.rawValue, "closed"]) else { return 0 }
        let session = try BusSession.connect(to: .local(folder)) { session, event in
            switch event {
            case .settingChanged: session.connection.query(.status, QueryPage(limit: 1))
            case .queryAnswer(_, let json):
                left = Self.unfinishedFlights(json)
                guard left != 0 else { return }
                session.loop.setTimer(after: Self.pollInterval) { [unowned session] in
                    session.connection.query(.status, QueryPage(limit: 1))
                }
            case .messageRefused(let reply): session.end(with: .refused(reply))
            case .accepted, .terminal, .progress, .cancelled, .removed, .state: break
            }
        }
        session.onSignal = { [unowned session] in
            session.end(
                with: CommandError(
                    .interrupted,
                    "interrupted; the bus accepts no requests until `earshot set admission open` or its next start"))
        }
        if let limit = limit.timeoutDuration { session.loop.setTimer(after: limit) { isLate = true } }
        session.connection.changeSetting(setting)
        try session.run { left == 0 || isLate }
        return left
    }

    /// Returns the number of flights that have not ended, from an answer to QUERY status; nil while the broker loads
    /// durable requests.
    static func unfinishedFlights(_ json: [UInt8]) -> Int? {
        guard let answer = JSONValue(json), answer.member("durable") == nil,
            case .object(let phases)? = answer.member("flights-now")
        else { return nil }
        return phases.reduce(0) { $0 + ($1.value.scalarText.flatMap { Int($0) } ?? 0) }
    }
}
