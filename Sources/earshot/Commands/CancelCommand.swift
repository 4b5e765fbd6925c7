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
        try runAndExit {
            var wasOpen: Bool?
            let session = try BusSession.connect(to: place.busLocation(), owner: owner.user) { _, event in
                if case .cancelled(_, let answer) = event { wasOpen = answer }
            }
            session.connection.cancel(RequestKey(handler, request))
            try session.run { wasOpen != nil }
            guard wasOpen == true else {
                throw CommandError(.nothingMatched, "nothing matched: \(handler) has no open request \(request)")
            }
            return .success
        }
    }
}
