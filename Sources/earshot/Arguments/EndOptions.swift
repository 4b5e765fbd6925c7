internal import ArgumentParser

/// Option for the time that a command waits for an end: of the bus, or of requests.
struct EndOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Maximum time to wait, in seconds. (default: none)", valueName: "seconds"))
    var timeout: Double?

    /// Maximum of `timeout`: 31 years.
    private static let mostSeconds = 1_000_000_000

    var duration: Duration? { timeout.map { .milliseconds(Int($0 * 1_000)) } }

    func validate() throws {
        if let timeout, !(timeout > 0 && timeout <= Double(Self.mostSeconds)) {
            throw ValidationError("--timeout: give a number of seconds above 0, at most \(Self.mostSeconds)")
        }
    }
}
