internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot cancel`: removal of one request.
struct CancelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "End one request. No error if there is none of that name.")

    @Argument(help: "Its handler.")
    var handler: HandlerID

    @Argument(help: "Its ID.")
    var request: RequestID

    @OptionGroup var place: PlaceOptions

    func run() throws {
        try conclude {
            var isAnswered = false
            let session = try BusSession.find(in: place.folder(), client: "cancel") { _, event in
                if case .cancelled = event { isAnswered = true }
            }
            session.connection.cancel(RequestKey(handler, request))
            try session.run { isAnswered }
            return .done
        }
    }
}
