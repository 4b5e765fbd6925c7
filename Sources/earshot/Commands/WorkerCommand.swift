internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWorker

/// `earshot worker`: one worker of a running broker.
struct WorkerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "worker", abstract: "Run one worker. `earshot serve` runs a broker with its workers.")

    @OptionGroup var place: PlaceOptions
    @OptionGroup var worker: WorkerTuning

    @Option(help: "Transfers at once, until the broker wishes for another number.")
    var slots = 64

    @OptionGroup var family: FamilyOptions
    @OptionGroup var log: LogOptions

    func validate() throws {
        guard SettingName.slots.range.contains(slots) else {
            throw ValidationError("--slots is \(SettingName.slots.bounds)")
        }
    }

    func run() throws {
        try conclude {
            var options = worker.options(WorkerOptions(workPath: try place.folder().workPath, slots: slots))
            options.secret = try family.secret()
            options.parentPid = family.parentPid
            return try ChildRun.worker(options).run(log.logLevel)
        }
    }
}

/// Options of a worker, alone or under the supervisor.
struct WorkerTuning: ParsableArguments {
    @Option(help: "What is said in User-Agent when a request says nothing.")
    var userAgent: String?

    @Option(
        name: .customLong("dns-server"),
        help: "Numeric address of a name server, with an optional :port, instead of the system's; may be repeated.")
    var dnsServers: [String] = []

    @Option(help: "File of certificates to trust instead of the system's.", completion: .file())
    var caFile: String?

    @Option(
        help: """
            File to which the secrets of TLS connections are appended, for a tool that decrypts captured traffic. The \
            environment's SSLKEYLOGFILE is ignored.
            """, completion: .file())
    var tlsKeyLog: String?

    func validate() throws {
        for server in dnsServers where !WorkerOptions.isNameServer(server) {
            throw ValidationError(
                "--dns-server \(server): give a numeric address, such as 9.9.9.9, 9.9.9.9:53 or [::1]:53")
        }
        if let caFile { try TrustFile.check(caFile, "--ca-file") }
        if let userAgent, ByteText.isMarked(userAgent) { throw ValidationError("--user-agent is not UTF-8") }
        if let userAgent, userAgent.utf8.contains(where: { $0 < 0x20 || $0 == 0x7f }) {
            throw ValidationError("--user-agent holds a control character")
        }
    }

    /// Returns `options` with the values of the command line.
    func options(_ options: WorkerOptions) -> WorkerOptions {
        var options = options
        if !dnsServers.isEmpty { options.dnsServers = dnsServers }
        if let caFile { options.caFile = Folder.absolute(caFile) }
        if let tlsKeyLog { options.tlsKeyLog = Folder.absolute(tlsKeyLog) }
        if let userAgent { options.userAgent = userAgent }
        return options
    }
}
