internal import ArgumentParser
internal import EarshotBroker
internal import EarshotClient
internal import EarshotCluster
internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// `earshot broker`: one broker, without workers.
struct BrokerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "broker", abstract: "Run a broker without workers.",
        usage: "earshot broker [<options>]",
        discussion: """
            For a supervisor of your own, together with `earshot worker`. `earshot serve` runs a broker with its workers.

              earshot broker --runtime bus &
              earshot worker --runtime bus
            """)

    @OptionGroup(title: "Bus") var place: RuntimeOptions
    @OptionGroup(title: "Bus") var spool: SpoolOptions
    @OptionGroup(title: "Bus") var cache: CacheOptions
    @OptionGroup(title: "Bus") var durable: DurableOptions
    @OptionGroup(title: "Bus") var readiness: ReadinessOptions
    @OptionGroup(title: "Bus") var cluster: ClusterFileOption
    @OptionGroup(title: "Settings") var settings: SettingOptions
    @OptionGroup var family: ChildProcessOptions
    @OptionGroup(title: "Output") var log: LogFormatOptions

    @Option(help: ArgumentHelp("Directory of partial bodies that the supervisor chose.", visibility: .hidden))
    var partsFolder: String?

    @Flag(help: ArgumentHelp("An earlier broker of the supervisor has ended.", visibility: .hidden))
    var followsBroker = false

    @Option(
        name: .customLong("worker-pid"),
        help: ArgumentHelp("Process ID of a worker, which may not be a client.", visibility: .hidden))
    var workerPids: [Int32] = []

    @Option(
        name: .customLong("gateway-pid"),
        help: ArgumentHelp("Process ID of a gateway, whose sessions prove their principals.", visibility: .hidden))
    var gatewayPids: [Int32] = []

    @Option(help: ArgumentHelp("Descriptor of the channel to the supervisor.", visibility: .hidden))
    var supervisorFd: Int32?

    @Option(help: ArgumentHelp("Descriptor of the listening socket `bus`.", visibility: .hidden))
    var busFd: Int32?

    func validate() throws {
        let changes = try settings.settingChanges()
        guard !changes.contains(where: { $0.replacementKey == SettingName.workers.rawValue }) else {
            throw ValidationError("--workers: a broker without supervisor starts no workers; use `earshot serve`")
        }
    }

    func run() throws {
        try runAndExit {
            let folder = try place.runtimeFolder()
            var options = BrokerOptions(
                runtimeFolder: folder.path, spoolFolder: try spool.spoolFolderPath(place, folder))
            options.cacheFolder = try cache.cacheFolderPath(place, folder)
            options.partsFolder = supervisorFd == nil ? cache.partialBodiesFolder(place, folder) : partsFolder
            options.durableFolder = try durable.durableFolderPath(place, folder)
            options.workerSecret = try family.readSecret()
            options.parentPid = family.parentPid
            options.readyDescriptor = readiness.readyFd
            options.hasPredecessor = followsBroker
            options.workerPids = workerPids
            options.gatewayPids = gatewayPids
            options.busDescriptor = busFd
            if let supervisorFd {
                options.supervisorDescriptor = supervisorFd
                options.settings = try Self.receiveSettings(from: supervisorFd)
                options.cluster = try Self.clusterMembership(of: cluster.absolutePath)
                options.readEngineOptions = Self.engineReader(of: cluster.absolutePath)
            } else {
                let configuration = Configuration(
                    file: settings.source.file, optionChanges: try settings.settingChanges(), pool: nil)
                options.settings = try configuration.readSettings()
                options.readSettings = { try configuration.readSettings() }
                let path = try cluster.clusterPath(configuration)
                options.cluster = try path.map { path in try ClusterFile(path).membership() }
                options.readEngineOptions = Self.engineReader(of: path)
            }
            return try ChildRun.broker(options, cluster: nil).run(options.settings.logLevel, log.logFormat)
        }
    }

    /// Reads the file that the supervisor has read before. A later fault in it is no reason to end the supervisor.
    private static func clusterMembership(of path: String?) throws(CommandError) -> ClusterMembership? {
        do throws(CommandError) {
            return try path.map { path throws(CommandError) in try ClusterFile(path).membership() }
        } catch {
            throw CommandError(.cannotServe, error.sentence)
        }
    }

    /// Returns a function that reads the engine's options from the file of a cluster. It resolves no host names, which
    /// would block.
    private static func engineReader(of path: String?) -> (@Sendable () throws -> EngineOptions)? {
        guard let path else { return nil }
        return {
            let file = try ClusterFile(path)
            return file.engineOptions(file.node)
        }
    }

    /// Reads the settings that the supervisor sends first.
    private static func receiveSettings(from supervisor: Int32) throws -> Settings {
        var lines: [String] = []
        while let line = LineChannel.awaitLine(supervisor) {
            if line == Settings.endOfSettingsLine { return try Settings(supervisorLines: lines) }
            lines.append(line)
        }
        throw CommandError(.generalError, "the supervisor has ended; start it again with `earshot serve`")
    }
}

/// Location of the cache.
struct CacheOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Directory of the cache.", valueName: "dir"), completion: .directory)
    var cacheFolder: String?

    @Flag(help: "Run without a cache.")
    var noCache = false

    func validate() throws {
        guard cacheFolder == nil || !noCache else {
            throw ValidationError("--cache-folder and --no-cache exclude each other; give one of them")
        }
    }

    /// Returns the directory of the cache; nil for no cache.
    func cacheFolderPath(
        _ place: RuntimeOptions, _ folder: RuntimeFolder, _ service: ServiceFolders? = nil
    ) throws(ClientError) -> String? {
        noCache ? nil : try folderByPrecedence(place, folder, service)
    }

    /// Returns the directory of partial bodies, beside the directory that a cache has or would have. Nil without a
    /// default directory.
    func partialBodiesFolder(
        _ place: RuntimeOptions, _ folder: RuntimeFolder, _ service: ServiceFolders? = nil
    ) -> String? {
        (try? folderByPrecedence(place, folder, service)).flatMap { RuntimeFolder.partsPath(besideCache: $0) }
    }

    /// Returns, by precedence, the directory of the option, the one in the named runtime directory, that of the
    /// service, or the user's default.
    private func folderByPrecedence(
        _ place: RuntimeOptions, _ folder: RuntimeFolder, _ service: ServiceFolders?
    ) throws(ClientError) -> String {
        if let cacheFolder { return try Folder.checkedPath(cacheFolder, purpose: "cache") }
        guard place.runtime == nil else { return folder.innerCachePath }
        if let cache = service?.cache { return try Folder.checkedPath(cache, purpose: "cache") }
        return try RuntimeFolder.userCachePath()
    }
}

/// Location of durable requests.
struct DurableOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Directory of durable requests.", valueName: "dir"), completion: .directory)
    var durableFolder: String?

    @Flag(help: "Reject durable requests.")
    var noDurable = false

    func validate() throws {
        guard durableFolder == nil || !noDurable else {
            throw ValidationError("--durable-folder and --no-durable exclude each other; give one of them")
        }
    }

    /// Returns, by precedence, the directory of the option, the one in the named runtime directory, that of the
    /// service, or the user's default. Nil if durable requests are disabled.
    func durableFolderPath(
        _ place: RuntimeOptions, _ folder: RuntimeFolder, _ service: ServiceFolders? = nil
    ) throws(ClientError) -> String? {
        guard !noDurable else { return nil }
        if let durableFolder { return try Folder.checkedPath(durableFolder, purpose: "durable") }
        guard place.runtime == nil else { return folder.innerDurablePath }
        if let durable = service?.durable { return try Folder.checkedPath(durable, purpose: "durable") }
        return try RuntimeFolder.userDurablePath()
    }
}

/// Location of the spool.
struct SpoolOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Directory of the spool, for bodies larger than inline-bytes.", valueName: "dir"),
        completion: .directory)
    var spool: String?

    /// Returns, by precedence, the directory of the option, the one in the named runtime directory, that of the
    /// service, or the user's default.
    func spoolFolderPath(
        _ place: RuntimeOptions, _ folder: RuntimeFolder, _ service: ServiceFolders? = nil
    ) throws(ClientError) -> String {
        if let spool { return try Folder.checkedPath(spool, purpose: "spool") }
        guard place.runtime == nil else { return folder.innerSpoolPath }
        if let spool = service?.spool { return try Folder.checkedPath(spool, purpose: "spool") }
        return try RuntimeFolder.userSpoolPath()
    }
}
