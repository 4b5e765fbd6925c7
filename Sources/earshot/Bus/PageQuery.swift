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
            case .queryAnswer(_, let json): answer = session.parseAnswer(json)
            case .messageRefused(let reply): session.end(with: .refused(reply))
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
