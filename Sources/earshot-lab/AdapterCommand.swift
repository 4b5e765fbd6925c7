internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop

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
