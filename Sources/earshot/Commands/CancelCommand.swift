internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot cancel`: removal of one request.
struct CancelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel one request.",
        discussion: """
            The request ends without a result. Its transfer is aborted unless another request shares it. For a request \
            that is unknown or has ended, the exit code is 1.

              earshot cancel gallery/1 cover
            """)

    @Argument(help: "Handler of the request.")
    var handler: HandlerID

    @Argument(help: "ID of the request.")
    var request: RequestID

    @OptionGroup(title: "User") var owner: UserOption
    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try conclude {
            var isAnswered = false
            var isKnown = true
            // The answer to CANCEL is the same for an unknown request, so the command asks for its state first.
            let session = try BusSession.find(in: place.place(), client: "cancel", of: owner.user) {
                [handler, request] session, event in
                switch event {
                case .answer(_, let json):
                    isKnown = JSONValue(json)?.member("state")?.text != "unknown"
                    session.connection.cancel(RequestKey(handler, request))
                case .cancelled: isAnswered = true
                default: break
                }
            }
            session.connection.query(.why(handler, request))
            try session.run { isAnswered }
            guard isKnown else {
                throw Complaint(.nothingMatched, "nothing matched: \(handler) has no request \(request)")
            }
            return .done
        }
    }
}
