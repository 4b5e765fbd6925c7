internal import ArgumentParser

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
