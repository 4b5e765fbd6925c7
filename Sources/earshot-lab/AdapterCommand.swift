internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// `earshot-lab adapter`: executes the lines of a scenario with the Swift client library, see protocols/README.md.
struct AdapterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "adapter", abstract: "Do with the client library what lines of standard input say.")

    @OptionGroup var arguments: AdapterArguments

    func run() throws {
        let loop = try EventLoop()
        let adapter = try LibraryAdapter(
            RuntimeFolder(), bodies: arguments.folder, lease: arguments.lease, loop: loop)
        try loop.run { adapter.isOver }
    }
}

/// `earshot-lab bus-adapter`: executes the lines of a scenario with `Bus` and `Handler`, see protocols/README.md.
struct BusAdapterCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bus-adapter", abstract: "Do with Bus and Handler what lines of standard input say.")

    @OptionGroup var arguments: AdapterArguments

    func run() async throws {
        let output = Output(STDOUT_FILENO)
        do {
            let bus = try await Bus.connect(lease: arguments.lease)
            _ = output.write(Array("ready\n".utf8))
            let adapter = BusAdapter(bus, bodies: arguments.folder, output)
            // Reading blocks, so it runs on a dedicated thread.
            let (lines, source) = AsyncStream.makeStream(of: String.self)
            try BackgroundThread.run {
                while let line = readLine() { source.yield(line) }
                source.finish()
            }
            for await line in lines { await adapter.executeCommand(line) }
            await bus.close()
        } catch let error as BusError {
            _ = output.write(Array("error \(error.code): \(error)\n".utf8))
        }
    }
}

/// Command-line arguments of an adapter.
struct AdapterArguments: ParsableArguments {
    @Argument(help: "The folder for bodies.")
    var folder: String

    @Argument(help: "lease=SECONDS, whole ones.")
    var options: [String] = []

    /// Requested lease; zero for none.
    var lease: Duration { .seconds(options.last.flatMap { Int($0.dropFirst("lease=".count)) } ?? 0) }

    func validate() throws {
        guard options.allSatisfy({ $0.wholeMatch(of: /lease=\d{1,4}/) != nil }) else {
            throw ValidationError("the only option is lease=SECONDS")
        }
    }
}
