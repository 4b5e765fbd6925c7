internal import EarshotClient
internal import EarshotWire

/// Query of one table of the broker, page by page, so that only one page is in memory.
enum PageQuery {
    /// Calls `body` with each page.
    ///
    /// - Parameters:
    ///   - table: name of the table in the answer.
    ///   - filter: entries to select.
    ///   - body: returns whether it needs the next page.
    static func forEachPage(
        _ query: Query, _ table: String, filter: QueryPage, in bus: BusOptions, _ body: (JSONValue) throws -> Bool
    ) throws {
        var answer: JSONValue?
        let session = try BusSession.connect(to: bus.busLocation()) { session, event in
            switch event {
            case .queryAnswer(_, let json):
                answer = JSONValue(json)
                if answer == nil {
                    let sentence = "cannot parse the answer of the broker; use command and broker of the same version"
                    session.end(with: CommandError(.generalError, sentence))
                }
            case .messageRefused(let reply): session.end(with: Refused.commandError(reply))
            case .accepted, .terminal, .progress, .cancelled, .removed, .settingChanged, .state: break
            }
        }
        var page = filter
        repeat {
            answer = nil
            session.connection.query(query, page)
            try session.run { answer != nil }
            guard let answer, try body(answer) else { return }
            page.cursor = answer.member(table + "-next")?.scalarText
        } while page.cursor != nil
    }
}

/// Refusal of a message by the broker.
enum Refused {
    /// - Parameter status: exit status for a code without one of its own.
    static func commandError(_ reply: RefusedMessage, _ status: ExitStatus = .generalError) -> CommandError {
        CommandError(
            reply.code == "not-authorized" ? .notPermitted : status,
            "\(reply.detail ?? "rejected by the broker") (\(reply.code))")
    }
}
