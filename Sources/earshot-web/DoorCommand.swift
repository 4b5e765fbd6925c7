internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWeb
internal import Glibc

/// `earshot-web door`: the child of the supervisor that accepts HTTP clients.
struct DoorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "door", abstract: "Accept HTTP clients; started by `earshot serve`.", shouldDisplay: false)

    // Other names than those of the program itself, which would take them.
    @Option var at: [String] = []
    @Option var api: [String] = []
    @Option var origin: [String] = []
    @Option var rewrite: [String] = []
    @Option var tokens: [String] = []
    @Option var user: [UInt32] = []
    @Flag var pull = false
    @Flag var ownToken = false
    @Option var wait: Int
    @Option var bus: String
    @Option var spool: String
    @Option var supervisorFd: Int32
    @Option var parentPid: Int32?

    func run() throws {
        StandardStreams.openMissingDescriptors()
        var options = DoorProcess.Options(supervisorDescriptor: supervisorFd)
        options.doorOptions.addresses = at.compactMap { ListenAddress($0) }
        options.doorOptions.apiAddresses = api.compactMap { ListenAddress($0) }
        options.doorOptions.rewrittenHosts = Set(rewrite.map { $0.lowercased() })
        options.doorOptions.origins = Set(origin.map { $0.lowercased() })
        options.doorOptions.permittedUsers = Set(user)
        options.doorOptions.maximumWaitMilliseconds = wait
        options.doorOptions.readsBodiesByMessage = pull
        options.doorOptions.ownUserNeedsToken = ownToken
        options.doorOptions.busPath = bus
        options.spoolFolder = spool
        options.parentPid = parentPid
        do {
            options.doorOptions.tokens = try tokens.map { try TokenFile.readToken(from: $0) }
            try DoorProcess.run(options) { EarshotWebCommand.writeMessage($0) }
        } catch let error as SystemError {
            EarshotWebCommand.writeMessage(
                "cannot open the HTTP door at \((at + api).joined(separator: ", ")): \(error)")
            throw ExitCode(73)
        } catch let error as DescriptorShortage {
            EarshotWebCommand.writeMessage("cannot open the HTTP door: \(error)")
            throw ExitCode(73)
        } catch let error as TokenFile.Failure {
            EarshotWebCommand.writeMessage(error.description)
            throw ExitCode(78)
        }
    }
}
