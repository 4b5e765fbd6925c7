internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop

/// `earshot stop`: end of the bus.
struct StopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stop",
        abstract: "Stop the bus, and wait until it has ended.",
        usage: "earshot stop [<options>]",
        discussion: """
            Running transfers may finish, for at most the setting drain-seconds. Queued requests do not start. Their \
            programs keep them for the next bus, and durable ones stay on disk. `earshot drain` finishes them first.

              earshot stop
              earshot stop --now
            """)

    @Flag(help: "Abort running transfers.")
    var now = false

    @OptionGroup var limit: WaitTimeoutOptions
    @OptionGroup(title: "Bus") var place: RuntimeOptions

    func run() throws {
        try runAndExit {
            let bus = try BusProcess(in: place.localRuntimeFolder(forCommand: "stop"))
            try bus.stop(now: now, limit: limit.timeoutDuration)
            return .success
        }
    }
}
