/// QUERY: a question about the broker, answered by ANSWER with a JSON body.
public enum Query: Equatable, Sendable {
    /// No question. The ANSWER confirms that all earlier messages have been processed.
    case ping
    case status
    case ledger
    case handlers
    case origins
    case workers
    /// The requests that have not been acknowledged or removed.
    case requests
    /// The effective settings and the source of each value.
    case settings
    /// The reason why a request is not finished.
    case explainRequest(HandlerID, RequestID)
    /// The cluster of the broker: its members, and the work for and through it.
    case cluster
    /// The cookies in the jar of a handler's root. Their values are secret.
    case cookies(HandlerID)

    init(_ reader: HeadReader) throws(WireError) {
        let subject = try reader.operand(at: 0, named: "subject")
        try reader.expectOperands(subject == "why" ? 3 : subject == "cookies" ? 2 : 1)
        switch subject {
        case "ping": self = .ping
        case "status": self = .status
        case "ledger": self = .ledger
        case "handlers": self = .handlers
        case "origins": self = .origins
        case "workers": self = .workers
        case "requests": self = .requests
        case "settings": self = .settings
        case "cluster": self = .cluster
        case "why": self = .explainRequest(try reader.handler(at: 1), try reader.request(at: 2))
        case "cookies": self = .cookies(try reader.handler(at: 1))
        default:
            throw WireError(
                .badMessage,
                "QUERY takes ping, status, ledger, handlers, origins, workers, requests, settings, cluster, why or cookies"
            )
        }
    }

    /// Whether the reply lists the records of a table.
    public var listsTableRows: Bool {
        switch self {
        case .status, .handlers, .origins, .workers, .requests, .settings, .cookies: true
        case .ping, .ledger, .cluster, .explainRequest: false
        }
    }

    /// The operands of QUERY and of its ANSWER.
    public var operands: [String] {
        switch self {
        case .ping: ["ping"]
        case .status: ["status"]
        case .ledger: ["ledger"]
        case .handlers: ["handlers"]
        case .origins: ["origins"]
        case .workers: ["workers"]
        case .requests: ["requests"]
        case .settings: ["settings"]
        case .cluster: ["cluster"]
        case .explainRequest(let handler, let request): ["why", handler.description, request.description]
        case .cookies(let handler): ["cookies", handler.description]
        }
    }
}
