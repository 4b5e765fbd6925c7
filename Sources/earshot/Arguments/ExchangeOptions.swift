internal import ArgumentParser

/// Options for the output of response header fields.
struct HeaderOptions: ParsableArguments {
    @Flag(help: "Print status and header fields before the body on standard output.")
    var include = false

    @Option(
        name: [.customShort("D"), .long],
        help: ArgumentHelp(
            "Write status and header fields of each response to a file; - is standard output.", valueName: "file"),
        completion: .file())
    var dumpHeader: String?
}

/// Options for the course of a run.
struct CourseOptions: ParsableArguments {
    /// Range of `jobs`. Its upper bound is the number of pending requests of a run.
    private static let jobsRange = 1...GetRun.outstanding

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "Maximum number of pending requests to one origin. The bus has a limit as well, origin-limit.",
            valueName: "n"))
    var jobs: Int?

    @Flag(help: "Print method, URL and output file of each request, and send nothing.")
    var dryRun = false

    func validate() throws {
        guard jobs.map(Self.jobsRange.contains) ?? true else {
            throw ValidationError("--jobs: give \(Self.jobsRange.lowerBound) to \(Self.jobsRange.upperBound)")
        }
    }
}
