internal import ArgumentParser

/// `earshot-lab bench`: microbenchmarks of core and wire, which `bin/bench core` and `bin/bench instructions` run.
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench", abstract: "Measure.", subcommands: [CoreBenchCommand.self, CountCommand.self])
}

/// `earshot-lab bench core`: time and memory of the core's operations by number of queued requests.
struct CoreBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "core",
        abstract: "Nanoseconds of the core's operations, and bytes of a queued request, at several sizes.",
        discussion: """
            Each column is measured in a core with so many requests queued, with 80-byte URLs and without fields, of ten \
            clients, a thousand handlers and five thousand origins. What grows along a row costs more than O(1).
            """)

    @Argument(help: "Requests queued.")
    var sizes = [1_000, 100_000, 1_000_000]

    mutating func validate() throws {
        guard sizes.allSatisfy({ (CoreBench.sampleCount...2_000_000).contains($0) }) else {
            throw ValidationError("sizes are \(CoreBench.sampleCount) to 2000000")
        }
    }

    func run() throws {
        let results = sizes.map { CoreBench(queuedRequests: $0).run() }
        print("queued".padded(to: 24) + sizes.map { String($0).padded(to: -12) }.joined())
        for (index, row) in CoreBench.rowTitles.enumerated() {
            print(row.padded(to: 24) + results.map { String($0[index]).padded(to: -12) }.joined())
        }
    }
}

/// `earshot-lab bench count`: repeats one operation for callgrind, which collects in functions named `counted…`.
struct CountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "count", abstract: "Do one operation often, and tell how often; bin/bench instructions counts it.")

    @Argument(help: "decode or encode a message; submit, join, assign or complete in the core.")
    var operation: CountedOperation

    @Argument(help: "Requests queued in the core.")
    var queued = 1_000

    func validate() throws {
        guard (CoreBench.sampleCount...2_000_000).contains(queued) else {
            throw ValidationError("\(CoreBench.sampleCount) to 2000000 can be queued")
        }
    }

    func run() throws {
        let times =
            switch operation {
            case .decode, .encode: WireBench().runCounted(decodes: operation == .decode)
            case .submit, .join, .assign, .complete: CoreBench(queuedRequests: queued).runCounted(operation)
            }
        print(times)
    }
}

extension String {
    /// Returns the string padded with spaces: on the right to `width` characters, or on the left for a negative width.
    fileprivate func padded(to width: Int) -> String {
        let spaces = String(repeating: " ", count: max(0, abs(width) - count))
        return width < 0 ? spaces + self : self + spaces
    }
}
