internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// `earshot-lab client`: a client of a chaos run, based on the client library.
struct ClientCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "client", abstract: "Do what a plan says, and write a journal of it.",
        discussion: """
            The plan's first line is `window N lease SECONDS`, its others are steps. Prints `idle` when all of it has ended; leaves \
            when its standard input ends.
            """)

    @Argument(help: "The file of the plan.")
    var plan: String

    @Argument(help: "The file of the journal, made anew.")
    var journal: String

    @Option(help: "The broker's runtime folder.")
    var runtime: String?

    func run() throws {
        SignalSource.ignoreWriteSignals()
        let lines = try read(plan).split(separator: "\n")
        let first = lines.first?.split(separator: " ") ?? []
        guard first.count == 4, let window = Int(first[1]), let lease = Int(first[3]) else {
            throw ValidationError("the plan does not begin with a window and a lease")
        }
        let loop = try EventLoop()
        let client = try PlannedClient(
            folder: RuntimeFolder(named: runtime), window: window, lease: .seconds(lease),
            steps: lines.dropFirst().map(PlanStep.init), journal: JournalFile(journal), loop: loop
        ) {
            _ = Output(STDOUT_FILENO).write(Array("idle\n".utf8))
        }
        let input = try loop.add(STDIN_FILENO, .readable) { _ in loop.stop() }
        defer { loop.remove(input) }
        try loop.run { client.failure != nil }
        if let failure = client.failure { throw failure }
        client.close()
    }

    private func read(_ path: String) throws -> String {
        guard let file = unsafe fopen(path, "r") else { throw SystemError("open the plan", number: errno) }
        defer { unsafe fclose(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe fread(&buffer, 1, buffer.count, file)
            guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
            bytes += buffer[..<count]
        }
    }
}
