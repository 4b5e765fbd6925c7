internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

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
            for await line in lines { await adapter.carryOut(line) }
            await bus.close()
        } catch let error as BusError {
            _ = output.write(Array("error \(error.code): \(error)\n".utf8))
        }
    }
}
