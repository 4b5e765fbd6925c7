internal import ArgumentParser
internal import Crypto
internal import EarshotClient
internal import EarshotLoop
internal import Glibc
internal import Logging

/// `earshot serve`: the supervisor of a broker and its workers.
struct ServeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Run the bus: a broker and a fixed pool of workers, each started again when it dies.",
        discussion: """
            SIGTERM or Ctrl-C lets running transfers finish (at most --drain-seconds); a second one stops at once.
            """)

    @OptionGroup var place: PlaceOptions
    @OptionGroup var broker: BrokerTuning
    @OptionGroup var worker: WorkerTuning
    @OptionGroup var log: LogOptions

    @Option(help: "Worker processes; one per core, at least 2, if not given.")
    var workers: Int?

    @Option(help: "Descriptor to which `ready` is written when programs can connect.")
    var readyFd: Int32?

    @Option(help: ArgumentHelp("Process for which alone this bus is: it ends with it.", visibility: .hidden))
    var privateTo: Int32?

    func validate() throws {
        if let workers, !(1...1000).contains(workers) { throw ValidationError("--workers is 1 to 1000") }
    }

    func run() throws {
        try conclude {
            if let privateTo, try !ParentProcess.bind(to: privateTo, signal: SIGTERM) { return .done }
            let folder = try place.folder()
            let spool = try broker.spoolFolder(place, folder)
            try folder.prepare()
            guard let lock = try LockFile.take(folder.supervisorLock) else {
                throw Complaint(.cannotServe, "another supervisor serves in \(folder.path)")
            }
            let count = workers ?? max(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))))
            let plan = Supervisor.Plan(
                folder: folder,
                broker: ["broker", "--runtime", folder.path, "--spool", spool] + broker.arguments
                    + ["--log-level", log.logLevel.rawValue],
                worker: ["worker", "--runtime", folder.path] + worker.arguments
                    + ["--log-level", log.logLevel.rawValue],
                workers: count, secret: Hex.encode(Secret.randomBytes(32)), drainSeconds: broker.drainSeconds,
                isPrivate: privateTo != nil)
            let supervisor = try Supervisor(plan)
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
