internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker
internal import Logging

/// `earshot worker`: one worker of a running broker.
struct WorkerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "worker", abstract: "Run one worker for a running broker.",
        usage: "earshot worker [<options>]",
        discussion: """
            For a supervisor of your own, together with `earshot broker`. `earshot serve` runs a broker with its workers.

              earshot worker --runtime bus
            """)

    @Option(help: ArgumentHelp("Concurrent transfers, until the broker sets another number.", valueName: "n"))
    var slots = 64

    @OptionGroup(title: "Network") var worker: WorkerTuning
    @OptionGroup(title: "Bus") var place: RuntimeOptions
    @OptionGroup var family: ChildProcessOptions
    @OptionGroup(title: "Output") var log: LogOptions
    @OptionGroup(title: "Output") var form: LogFormatOptions

    func validate() throws {
        guard SettingName.slots.storedValueRange.contains(slots) else {
            throw ValidationError("--slots must be \(SettingName.slots.possibleValuesDescription)")
        }
    }

    func run() throws {
        try runAndExit {
            let folder = try place.runtimeFolder()
            var options = try worker.options(WorkerOptions(workPath: folder.workSocketPath, slots: slots))
            options.secret = try family.readSecret()
            options.parentPid = family.parentPid
            // A worker without a supervisor keeps the level of its option.
            options.followsLogLevel = options.secret != nil
            if options.secret == nil, (try? folder.hasBroker()) != true {
                LineLog.logger("worker", log.logLevel, form.logFormat).notice(
                    "waiting for a broker; start one with `earshot broker`", metadata: ["path": "\(folder.path)"])
            }
            return try ChildRun.worker(options).run(log.logLevel, form.logFormat)
        }
    }
}

/// Options of a worker, alone or under the supervisor.
struct WorkerTuning: ParsableArguments {
    @Option(help: ArgumentHelp("User-Agent of requests without one.", valueName: "text"))
    var userAgent: String?

    @Option(
        name: .customLong("dns-server"),
        help: ArgumentHelp(
            "DNS server to use instead of the system's: ADDRESS or ADDRESS:PORT; may be repeated.",
            valueName: "address"))
    var dnsServers: [String] = []

    @Option(
        help: ArgumentHelp("CA certificates to trust instead of the system's, in PEM.", valueName: "file"),
        completion: .file())
    var caFile: String?

    @Option(
        help: ArgumentHelp(
            "Append TLS secrets to a file, for the analysis of captured traffic. SSLKEYLOGFILE is ignored.",
            valueName: "file"),
        completion: .file())
    var tlsKeyLog: String?

    func validate() throws {
        if let userAgent, ByteText.containsNonUTF8Bytes(userAgent) {
            throw ValidationError("--user-agent: the text must be UTF-8")
        }
        if let userAgent, userAgent.utf8.contains(where: \.isControl) {
            throw ValidationError("--user-agent: remove the control character")
        }
    }

    /// Returns `options` with the values of the command line.
    ///
    /// - Throws: `CommandError` for values with which no worker can run.
    func options(_ options: WorkerOptions) throws(CommandError) -> WorkerOptions {
        for server in dnsServers where !WorkerOptions.isNameServer(server) {
            throw CommandError(
                .configurationError,
                "--dns-server \(server): give a numeric address, such as 9.9.9.9, 9.9.9.9:53 or [::1]:53")
        }
        if let caFile, let fault = TrustFile.pathFault(caFile) {
            throw CommandError(.configurationError, "--ca-file: \(fault)")
        }
        var options = options
        if !dnsServers.isEmpty { options.dnsServers = dnsServers }
        if let caFile { options.caFile = Folder.absolutePath(caFile) }
        if let tlsKeyLog { options.tlsKeyLog = Folder.absolutePath(tlsKeyLog) }
        if let userAgent { options.userAgent = userAgent }
        return options
    }
}
