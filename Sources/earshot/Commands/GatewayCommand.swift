internal import ArgumentParser
internal import EarshotClient
internal import EarshotGateway
internal import EarshotLoop
internal import Logging

/// `earshot gateway`: the child of the supervisor that accepts clients on other machines, or the other nodes of a
/// cluster.
struct GatewayCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gateway", abstract: "Accept clients on other machines; started by `earshot serve`.",
        shouldDisplay: false)

    @OptionGroup var place: RuntimeOptions
    @Option(help: ArgumentHelp("Parent process; this process ends with it.", visibility: .hidden))
    var parentPid: Int32?

    @OptionGroup var log: LogOptions
    @OptionGroup var form: LogFormatOptions

    @Option(help: ArgumentHelp("Addresses, separated by commas.", visibility: .hidden))
    var listen: String

    @Option(help: ArgumentHelp("File of the keys.", visibility: .hidden))
    var keys: String?

    @Option(help: ArgumentHelp("File of the cluster, in place of the keys.", visibility: .hidden))
    var cluster: String?

    @Option(help: ArgumentHelp("Descriptor of the channel to the supervisor.", visibility: .hidden))
    var supervisorFd: Int32?

    func validate() throws {
        guard (keys == nil) != (cluster == nil) else {
            throw ValidationError("--keys and --cluster: give one of them")
        }
    }

    func run() throws {
        try runAndExit {
            let source: GatewayKeySource = cluster.map { .cluster($0) } ?? .keys(keys ?? "")
            var options = GatewayOptions(
                addresses: listen.split(separator: ",").compactMap { GatewayAddress(String($0)) },
                busPath: try place.runtimeFolder().path + "/bus", workPath: try place.runtimeFolder().workSocketPath,
                keysFolder: KeyFile.folder(of: source.path)
            ) { try source.read() }
            options.parentPid = parentPid
            options.supervisorDescriptor = supervisorFd
            return try ChildRun.gateway(options, source).run(log.logLevel, form.logFormat)
        }
    }
}
