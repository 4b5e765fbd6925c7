internal import ArgumentParser
internal import CBuild
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWeb
internal import Glibc

/// `earshot-web`: metrics, health checks and a live page of a bus over HTTP.
@main
struct EarshotWebCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "earshot-web",
        abstract: "Serve metrics, health checks and a live page of a bus over HTTP.",
        discussion: """
            Resources: / (live page), /metrics (Prometheus), /healthz, /readyz, /status.json, /events, /why. No request \
            changes the bus. Any local user can read a TCP port without a token; a Unix socket has mode 0600.

              earshot-web                                  # http://127.0.0.1:5766/
              earshot-web --listen ~/.cache/earshot-web    # a Unix socket
              earshot-web --listen 0.0.0.0:5766 --token-file FILE --host bus.example
            """,
        version: "earshot-web \(EARSHOT_VERSION)", subcommands: [DoorCommand.self])

    @Option(
        help: ArgumentHelp(
            "Numeric address and port, or the path of a Unix socket.", valueName: "address"))
    var listen = "127.0.0.1:5766"

    @Option(
        help: ArgumentHelp(
            """
            File with the token that clients must send, 16 to 256 visible ASCII characters. Required for addresses other \
            than loopback.
            """, valueName: "file"), completion: .file())
    var tokenFile: String?

    @Option(
        help: ArgumentHelp("Name of this server, besides localhost and addresses. Can be repeated.", valueName: "name"))
    var host: [String] = []

    @Option(help: ArgumentHelp("Runtime directory of the broker.", valueName: "dir"), completion: .directory)
    var runtime: String?

    static func main() {
        let arguments = (1..<max(1, Int(build_argument_count()))).compactMap { index in
            unsafe build_arguments()[index].map { unsafe String(cString: $0) }
        }
        main(arguments)
    }

    func validate() throws {
        guard let address = ListenAddress(listen) else {
            throw ValidationError(
                "--listen has no valid address: use HOST:PORT with a numeric host, or the path of a socket with a slash"
            )
        }
        guard address.isLocal || tokenFile != nil else {
            throw ValidationError("--listen with an address other than loopback requires --token-file")
        }
    }

    func run() throws {
        StandardStreams.openMissingDescriptors()
        SignalSource.ignoreWriteSignals()
        guard let address = ListenAddress(listen) else { throw ExitCode.validationFailure }
        do {
            let token = try tokenFile.map { try TokenFile.readToken(from: $0) }
            try serve(at: address, token: token)
        } catch let error as TokenFile.Failure {
            try exitWithMessage(code: 78, sentence: error.description)
        } catch let error as SystemError {
            try exitWithMessage(code: 73, sentence: "cannot listen at \(listen): \(error)")
        } catch let error as DescriptorShortage {
            try exitWithMessage(code: 73, sentence: "cannot start: \(error)")
        } catch let error as ClientError {
            try exitWithMessage(code: 73, sentence: error.description)
        }
    }

    private func serve(at address: ListenAddress, token: [UInt8]?) throws {
        let manager = try ServiceManager.takeFromEnvironment()
        let signals = try SignalSource([SIGINT, SIGTERM])
        let loop = try EventLoop()
        let server = try WebServer(RuntimeFolder(named: runtime), at: address, token: token, hosts: host, loop: loop)
        var isOver = false
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while signals.nextSignal() != nil { isOver = true }
        }
        Self.writeMessage("listening at \(server.address)")
        manager?.notify([("READY", "1"), ("STATUS", "listening at \(server.address)")], loop: loop)
        try loop.run { isOver || server.failure != nil }
        server.close()
        loop.remove(registration)
        if case .unix(let path) = address { _ = unsafe unlink(path) }
        if let failure = server.failure {
            try exitWithMessage(code: 73, sentence: "cannot connect to a broker: \(failure)")
        }
    }

    private func exitWithMessage(code: Int32, sentence: String) throws {
        Self.writeMessage(sentence)
        throw ExitCode(code)
    }

    static func writeMessage(_ line: String) {
        let bytes = Array((TerminalText.escaped("earshot-web: \(line)") + "\n").utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
