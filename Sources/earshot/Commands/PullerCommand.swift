internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWorker
internal import Logging

/// `earshot puller`: the child of the supervisor that fetches bodies from the other nodes of a cluster.
struct PullerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "puller", abstract: "Fetch bodies from the other nodes of a cluster; started by `earshot serve`.",
        shouldDisplay: false)

    @OptionGroup var place: RuntimeOptions
    @OptionGroup var family: ChildProcessOptions
    @OptionGroup var log: LogOptions
    @OptionGroup var form: LogFormatOptions

    @Option(help: ArgumentHelp("File of the cluster.", visibility: .hidden))
    var cluster: String

    func run() throws {
        try runAndExit {
            let file = try ClusterFile(cluster)
            var options = PullerOptions(workPath: try place.runtimeFolder().workSocketPath)
            options.secret = try family.readSecret()
            options.parentPid = family.parentPid
            options.makeNetwork = { loop in try NodeConnections(file, loop: loop) }
            return try ChildRun.puller(options, cluster: cluster).run(log.logLevel, form.logFormat)
        }
    }
}
