internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot drop`: removal of a handler, or of all handlers below a name.
struct DropCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "drop",
        abstract: "Remove a handler and all its requests.",
        discussion: """
            Prints the number of removed requests that had not ended. A transfer is aborted unless a request of another \
            handler shares it.

              earshot drop gallery/1    # one handler
              earshot drop gallery/     # all handlers below gallery
              earshot drop --user alice crawl
            """)

    @Argument(help: "Handler, or NAME/ for all handlers below NAME.")
    var handler: HandlerPattern

    @OptionGroup(title: "User") var owner: UserOption
    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            var removed: Int?
            let session = try BusSession.connect(to: place.busLocation(), owner: owner.user) { _, event in
                if case .removed(_, let count) = event { removed = count }
            }
            session.connection.remove(handler)
            try session.run { removed != nil }
            try StandardOutput().write(report(removed ?? 0))
            return .success
        }
    }

    private func report(_ count: Int) -> [UInt8] {
        guard format.json else {
            let requests = count == 1 ? "1 request" : "\(count) requests"
            return Array("removed \(requests) of \(handler)\n".utf8)
        }
        var line = JSONLine()
        line.appendMember("handler", handler.description)
        line.appendMember("removed", count)
        return line.finishedLine()
    }
}
