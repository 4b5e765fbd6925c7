internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot drop`: removal of a handler, or of all handlers below a name.
struct DropCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "drop",
        abstract: "Remove a handler (or with a slash at its end all below it): what it wants is purged.",
        discussion: "Prints how many requests were removed. Their transfers are cut off.")

    @Argument(help: "HANDLER, or HANDLER/ for all below it.")
    var handler: HandlerPattern

    @OptionGroup var place: PlaceOptions

    func run() throws {
        try conclude {
            var removed: Int?
            let session = try BusSession.find(in: place.folder(), client: "drop") { _, event in
                if case .removed(_, let count) = event { removed = count }
            }
            session.connection.remove(handler)
            try session.run { removed != nil }
            try StandardOutput().write(line: String(removed ?? 0))
            return .done
        }
    }
}
