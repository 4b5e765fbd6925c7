internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop

/// `earshot-lab adapter`: the Swift client library behind the lines that scenarios speak, see protocols/README.md.
struct AdapterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "adapter", abstract: "Do with the client library what lines of standard input say.")

    @Argument(help: "The folder for bodies.")
    var folder: String

    @Argument(help: "lease=SECONDS, whole ones.")
    var options: [String] = []

    func validate() throws {
        guard options.allSatisfy({ $0.wholeMatch(of: /lease=\d{1,4}/) != nil }) else {
            throw ValidationError("the only option is lease=SECONDS")
        }
    }

    func run() throws {
        let loop = try EventLoop()
        let lease = options.last.flatMap { Int($0.dropFirst("lease=".count)) } ?? 0
        let adapter = try LibraryAdapter(RuntimeFolder(), bodies: folder, lease: .seconds(lease), loop: loop)
        try loop.run { adapter.isOver }
    }
}
