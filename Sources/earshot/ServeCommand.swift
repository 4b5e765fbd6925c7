internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import LibCrypto
internal import Logging

/// `earshot serve`: the supervisor of a broker and its workers.
struct ServeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Run the bus: a broker and a fixed pool of workers, each started again when it dies.",
        discussion: """
            SIGTERM or Ctrl-C lets running transfers finish (at most --drain-seconds); a second one stops at once.

            Arguments are stronger than the files of settings, which `earshot config` tells of. SIGHUP has the files \
            read again; `earshot set` changes a setting until then.

            As a service it tells systemd when it is ready, reloads, stops and lives (sd_notify), and uses the folders of \
            RuntimeDirectory=, CacheDirectory= and StateDirectory=: examples/systemd.
            """)

    @OptionGroup var place: PlaceOptions
    @OptionGroup var spool: SpoolOptions
    @OptionGroup var cache: CacheOptions
    @OptionGroup var durable: DurableOptions

    @Option(help: "Worker processes; one per core, at least 2, if nobody says anything.")
    var workers: String?

    @OptionGroup var settings: SettingOptions
    @OptionGroup var worker: WorkerTuning
    @OptionGroup var log: LogOptions

    @Option(help: "Descriptor to which `ready` is written when programs can connect.")
    var readyFd: Int32?

    @Option(help: ArgumentHelp("Process for which alone this bus is: it ends with it.", visibility: .hidden))
    var privateTo: Int32?

    @Option(help: ArgumentHelp("Workers at most, whatever is set in files.", visibility: .hidden))
    var mostWorkers: Int?

    func validate() throws { _ = try poolChange() }

    private func poolChange() throws -> [SettingChange] {
        try workers.map { [try SettingOptions.change([SettingName.workers.rawValue, $0])] } ?? []
    }

    func run() throws {
        try conclude {
            let manager = try ServiceManager.take()
            // What Swift's runtime tells of a child that crashed: where, but nothing of its memory, which is
            // confidential.
            unsafe setenv("SWIFT_BACKTRACE", "registers=none,images=none", 0)
            if let privateTo, try !ParentProcess.bind(to: privateTo, signal: SIGTERM) { return .done }
            let service = ServiceFolders()
            let folder = try service.runtime(place)
            let spool = try spool.folder(place, folder, service)
            let cache = try cache.arguments(place, folder, service)
            let durable = try durable.arguments(place, folder, service)
            let configuration = Configuration(
                file: settings.source.file, flags: try poolChange() + settings.changes(),
                pool: ConfigurationOptions.pool, mostWorkers: mostWorkers)
            let initial = try configuration.read()
            try folder.prepare()
            guard let lock = try LockFile.take(folder.supervisorLock) else {
                throw Complaint(.cannotServe, "another supervisor serves in \(folder.path)")
            }
            let plan = Supervisor.Plan(
                folder: folder,
                // A private bus has to be there soon; another one lives long, and has no two processes alike.
                program: privateTo == nil ? .thisFile : Earshot.copy,
                broker: ["broker", "--runtime", folder.path, "--spool", spool] + cache + durable
                    + ["--log-level", log.logLevel.rawValue],
                worker: ["worker", "--runtime", folder.path] + worker.arguments
                    + ["--log-level", log.logLevel.rawValue],
                secret: Hex.encode(Secret.randomBytes(32)), configuration: configuration,
                isPrivate: privateTo != nil, service: privateTo == nil ? manager : nil)
            let supervisor = try Supervisor(plan, initial)
            let count = initial[.workers] ?? 0
            supervisor.onReady = {
                if privateTo == nil { Complaint.say("ready, bus \(folder.busEndpoint), \(count) workers") }
                if let readyFd { InheritedPipe.sayReady(readyFd) }
            }
            try supervisor.run()
            if privateTo != nil { Folder.remove(folder.path) }
            withExtendedLifetime(lock) {}
            return .done
        }
    }
}
