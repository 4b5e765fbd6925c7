internal import EarshotClient
internal import EarshotWire

/// Request in an answer to `QUERY requests`, for the lines of `list` and for `retry`.
struct RequestRow {
    /// Columns of a line, in their order. Only a request of another user has the last one.
    static let columns = ["state", "class", "age", "tries", "handler", "request", "url", "user"]

    /// Members as received.
    private let members: [JSONValue.Member]

    /// Creates the rows of an answer; none if it is not an answer to this query.
    static func rows(_ answer: JSONValue) -> [RequestRow] {
        answer.items(ofMember: "requests").compactMap { item in
            if case .object(let members) = item { RequestRow(members: members) } else { nil }
        }
    }

    private func memberText(_ name: String) -> String? { members.first { $0.name == name }?.value.scalarText }

    /// Scheme, host and port of the URL; nil without a URL.
    var origin: String? {
        guard let url = memberText("url"), let mark = url.firstRange(of: "://") else { return nil }
        return String(url[..<(url[mark.upperBound...].firstIndex { "/?#".contains($0) } ?? url.endIndex)])
    }

    /// Handler and ID; nil for an answer of another form.
    var key: RequestKey? {
        guard let handler = memberText("handler").flatMap({ HandlerID($0) }),
            let id = memberText("request").flatMap({ RequestID($0) })
        else { return nil }
        return RequestKey(handler, id)
    }

    /// State; nil for one of a newer broker.
    var state: RequestState? { memberText("state").flatMap { RequestState(rawValue: $0) } }

    /// Principal of its handler; nil for one of the client's own.
    var principal: String? { memberText("principal") }

    /// Code of its failure; nil for others.
    var code: String? { memberText("code") }

    /// Cells of its line, in the order of ``columns``. Control characters are escaped.
    var cells: [String] {
        let age = memberText("age-ms").flatMap { Int($0) }.map { TimeText.age(milliseconds: $0) }
        let end = memberText("code") ?? memberText("status")
        let isFailed = code != nil && state == .awaitingSubscriber
        let state = (isFailed ? "failed" : memberText("state") ?? "-") + (end.map { ":" + $0 } ?? "")
        let cells = [
            state, memberText("class") ?? "-", age ?? "-", memberText("attempts") ?? "-", memberText("handler") ?? "-",
            memberText("request") ?? "-", memberText("url") ?? "-",
        ]
        return (cells + [principal].compactMap(\.self)).map(TerminalText.escaped)
    }

    /// The line of JSON, with the members of the answer.
    var json: [UInt8] {
        var line = JSONLine()
        for member in members {
            guard let text = member.value.scalarText else { continue }
            if Self.numericFields.contains(member.name), let number = Int(text) {
                line.appendMember(member.name, number)
            } else {
                line.appendMember(member.name, text)
            }
        }
        return line.finishedLine()
    }

    private static let numericFields: Set = ["age-ms", "attempts", "worker", "received", "status"]
}
