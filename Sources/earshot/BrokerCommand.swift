internal import ArgumentParser
internal import EarshotBroker
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// `earshot broker`: one broker, without workers.
struct BrokerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "broker", abstract: "Run a broker alone. `earshot serve` runs one with its workers.")

    @OptionGroup var place: PlaceOptions
    @OptionGroup var broker: BrokerTuning
    @OptionGroup var family: FamilyOptions
    @OptionGroup var log: LogOptions

    @Option(help: "Descriptor to which `ready` is written when programs can connect.")
    var readyFd: Int32?

    @Option(
        help: ArgumentHelp("Workers that may still do an earlier broker's work.", visibility: .hidden))
    var expectedWorkers = 0

    func run() throws {
        try conclude {
            let folder = try place.folder()
            var options = BrokerOptions(
                runtimeFolder: folder.path, spoolFolder: try broker.spoolFolder(place, folder))
            options.secret = try family.secret()
            options.parentPid = family.parentPid
            options.readyDescriptor = readyFd
            options.expectedWorkers = expectedWorkers
            options.originLimit = broker.originLimit
            options.drainSeconds = broker.drainSeconds
            options.inlineBytes = broker.inlineBytes
            let logger = LineLog.logger("broker", log.logLevel)
            do {
                let status = try BrokerProcess(options: options, logger: logger).run()
                return status == 0 ? .done : .other
            } catch let error as BrokerError {
                throw Complaint(.cannotServe, error.description)
            }
        }
    }
}

/// What a broker can be told, alone or under the supervisor.
struct BrokerTuning: ParsableArguments {
    @Option(help: "The folder of bodies too large to travel inline.", completion: .directory)
    var spool: String?

    @Option(help: "Transfers at once to one origin.")
    var originLimit = 6

    @Option(help: "Seconds that running work has after SIGTERM.")
    var drainSeconds = 10.0

    @Option(help: "Bodies up to so many bytes travel in messages.")
    var inlineBytes = 65_536

    func validate() throws {
        guard (1...10_000).contains(originLimit) else { throw ValidationError("--origin-limit is 1 to 10000") }
        guard (0...86_400).contains(drainSeconds) else { throw ValidationError("--drain-seconds is 0 to 86400") }
        guard (0...16 << 20).contains(inlineBytes) else { throw ValidationError("--inline-bytes is 0 to 16777216") }
    }

    /// The spool named, else the runtime folder's own if that was named, else the user's usual one.
    func spoolFolder(_ place: PlaceOptions, _ folder: RuntimeFolder) throws(ClientError) -> String {
        if let spool { return Folder.absolute(spool) }
        return place.runtime == nil ? try RuntimeFolder.usualSpool() : folder.ownSpool
    }

    /// The same as arguments, for a child.
    var arguments: [String] {
        [
            "--origin-limit", String(originLimit), "--drain-seconds", String(drainSeconds), "--inline-bytes",
            String(inlineBytes),
        ]
    }
}
