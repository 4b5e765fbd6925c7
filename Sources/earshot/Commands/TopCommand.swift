internal import ArgumentParser
internal import EarshotLoop

/// `earshot top`: live state of the bus.
struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Show the activity of the bus, updated every second.",
        usage: "earshot top [<options>]",
        discussion: """
            Shows counters and rates, the queue by class, the share of requests that the cache and other requests \
            served, workers, origins and handlers. If the output is no terminal, or with --json, each sample is a line.

            Keys: q quits, s sorts handlers by the next column, / filters handlers and origins, Up and Down select a \
            handler, d drops it with its requests, p pauses.

              earshot top
              earshot top --interval 10 --json | jq .pending
            """)

    @Option(help: ArgumentHelp("Time between two samples, in seconds.", valueName: "seconds"))
    var interval = 1.0

    @Option(help: ArgumentHelp("Exit after this many samples.", valueName: "n"))
    var count: Int?

    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func validate() throws {
        guard interval >= 0.1, interval <= 86_400 else {
            throw ValidationError("--interval: give a number of seconds from 0.1 to 86400")
        }
        if let count, count < 1 { throw ValidationError("--count: give a number of at least 1") }
    }

    func run() throws {
        try runAndExit {
            let run = TopRun(interval: .milliseconds(Int(interval * 1_000)), count: count, json: format.json)
            try run.run(in: place.busLocation())
            return .success
        }
    }
}
