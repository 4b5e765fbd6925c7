internal import ArgumentParser
internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWorker

/// `earshot serve`: a supervisor of one broker and its workers.
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

    @OptionGroup var settings: SettingOptions
    @OptionGroup var worker: WorkerTuning
    @OptionGroup var log: LogOptions

    @Option(help: "Descriptor to which `ready` is written when programs can connect.")
    var readyFd: Int32?

    @Option(help: ArgumentHelp("Process for which alone this bus is: it ends with it.", visibility: .hidden))
    var privateTo: Int32?

    @Option(help: ArgumentHelp("Workers at most, whatever is set in files.", visibility: .hidden))
    var mostWorkers: Int?

    func run() throws {
        try conclude {
            let manager = try ServiceManager.take()
            let service = ServiceFolders()
            let folder = try service.runtime(place)
            var broker = BrokerOptions(
                runtimeFolder: folder.path, spoolFolder: try spool.folder(place, folder, service))
            broker.cacheFolder = try cache.folder(place, folder, service)
            broker.durableFolder = try durable.folder(place, folder, service)
            let pool = ConfigurationOptions.pool
            let configuration = Configuration(
                file: settings.source.file, flags: try settings.changes(), pool: pool,
                mostWorkers: mostWorkers)
            let run = ServeRun(
                folder: folder, broker: broker,
                worker: worker.options(WorkerOptions(workPath: folder.workPath, slots: pool.slots)),
                configuration: configuration, logLevel: log.logLevel, readyDescriptor: readyFd, owner: privateTo)
            return try run.run(manager)
        }
    }
}
