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
        abstract: "Run the bus: a broker and a pool of workers.",
        usage: "earshot serve [<options>]",
        discussion: """
            A supervisor restarts each process that dies. SIGTERM or Ctrl-C lets running transfers finish, for at most \
            --drain-seconds; a second signal stops at once. SIGHUP reads the configuration files again.

            Options override environment variables and configuration files: see `earshot config`. `earshot set` changes \
            a setting at run time. As a systemd service it sends notifications (sd_notify), and uses RuntimeDirectory=, \
            CacheDirectory= and StateDirectory=.

              earshot serve
              earshot serve --workers 4 --origin-limit 2 --address-policy public-only
            """)

    @OptionGroup(title: "Bus") var place: RuntimeOptions
    @OptionGroup(title: "Bus") var spool: SpoolOptions
    @OptionGroup(title: "Bus") var cache: CacheOptions
    @OptionGroup(title: "Bus") var durable: DurableOptions
    @OptionGroup(title: "Bus") var readiness: ReadinessOptions
    @OptionGroup(title: "Bus") var cluster: ClusterFileOption

    @OptionGroup(title: "Settings") var settings: SettingOptions
    @Option(
        help: ArgumentHelp(
            "File of the keys of clients on other machines. (default: keys.toml beside the configuration file)",
            valueName: "file"),
        completion: .file())
    var keys: String?

    @OptionGroup(title: "Network") var worker: WorkerTuning
    @OptionGroup(title: "Output") var log: LogFormatOptions

    @Option(help: ArgumentHelp("Only user of this bus; the bus ends with that process.", visibility: .hidden))
    var privateTo: Int32?

    @Option(help: ArgumentHelp("Maximum number of workers, regardless of the settings.", visibility: .hidden))
    var maximumWorkers: Int?

    func validate() throws { try PathCheck.check([("--keys", keys)]) }

    func run() throws {
        try runAndExit {
            let manager = try ServiceManager.takeFromEnvironment()
            let service = ServiceFolders()
            let folder = try service.runtime(place)
            var broker = BrokerOptions(
                runtimeFolder: folder.path, spoolFolder: try spool.spoolFolderPath(place, folder, service))
            broker.cacheFolder = try cache.cacheFolderPath(place, folder, service)
            // The runtime directory of a private bus ends with it.
            broker.partsFolder =
                privateTo == nil
                ? cache.partialBodiesFolder(place, folder, service)
                : RuntimeFolder.partsPath(besideCache: cache.cacheFolder)
            broker.durableFolder = try durable.durableFolderPath(place, folder, service)
            let pool = ConfigurationOptions.pool
            let configuration = Configuration(
                file: settings.source.file, optionChanges: try settings.settingChanges(), pool: pool,
                maximumWorkers: maximumWorkers)
            let run = ServeRun(
                folder: folder, broker: broker,
                worker: try worker.options(WorkerOptions(workPath: folder.workSocketPath, slots: pool.slotsPerWorker)),
                configuration: configuration, logFormat: log.logFormat, readyDescriptor: readiness.readyFd,
                keysPath: keys.map(Folder.absolutePath) ?? KeyFile.path(settings.source),
                clusterPath: privateTo == nil ? try cluster.clusterPath(configuration) : nil, ownerPID: privateTo)
            return try run.run(manager)
        }
    }
}
