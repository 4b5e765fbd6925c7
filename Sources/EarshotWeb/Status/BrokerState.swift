internal import EarshotClient

/// Answer to `QUERY status`, with all pages of workers.
struct BrokerState {
    /// Why the bus is not ready for requests.
    enum Unreadiness: String {
        case noBroker = "no broker answers"
        case incompatible = "the broker speaks another version of the protocol; start the same version of both"
        case draining = "the broker is draining"
        case closedAdmission = "the setting admission is closed"
        case lostPath = "a directory or socket of the broker is lost"
        case noEngine = "the engine of the cluster cannot be used; within 5 s the node fetches without it"
        case noGateway = "the gateway ends soon after each start"
        case noWorker = "no worker is ready"
    }

    /// The members of the answer in order.
    private(set) var members: [JSONValue.Member]
    /// The answer as received, without further pages.
    let statusJSON: [UInt8]

    /// Parses an answer; nil if it is not a JSON object.
    init?(_ json: [UInt8]) {
        guard case .object(let members)? = JSONValue(json) else { return nil }
        self.members = members
        self.statusJSON = json
    }

    /// Start of the next page of workers; nil for none.
    var nextWorkers: String? { self["workers-next"]?.scalarText }

    /// Adds a further page of workers.
    mutating func addWorkersPage(_ json: [UInt8]) {
        guard let page = JSONValue(json), case .array(let more)? = page.member("workers"),
            case .array(let workers)? = self["workers"]
        else { return setMember("workers-next", to: nil) }
        setMember("workers", to: .array(workers + more))
        setMember("workers-next", to: page.member("workers-next"))
    }

    private mutating func setMember(_ name: String, to value: JSONValue?) {
        members.removeAll { $0.name == name }
        if let value { members.append(JSONValue.Member(name: name, value: value)) }
    }

    subscript(name: String) -> JSONValue? { members.first { $0.name == name }?.value }

    /// Items of an array; empty for other values.
    func arrayItems(_ name: String) -> [JSONValue] {
        guard case .array(let items)? = self[name] else { return [] }
        return items
    }

    /// Reason why the node of a cluster is without its engine; nil for a member, and for a bus on its own.
    var engineFault: String? { self["cluster"]?.member("reason")?.scalarText }

    /// Reasons why the node of a cluster runs no flights of other nodes.
    var suspensionReasons: [String] {
        self["cluster"]?.items(ofMember: "suspended").compactMap(\.scalarText) ?? []
    }

    /// Reason why the bus is not ready for requests; nil if it is.
    ///
    /// The broker decides, in the member `ready`. The other members contain the reason.
    var unreadiness: Unreadiness? {
        if self["ready"]?.scalarText == "true" { return nil }
        if self["phase"]?.scalarText != "serving" { return .draining }
        if self["admission"]?.scalarText == "closed" { return .closedAdmission }
        let isLost = arrayItems("faults").contains { $0.member("state")?.scalarText == "lost" }
        if isLost { return .lostPath }
        if self["cluster"]?.member("mode")?.scalarText == "waiting" { return .noEngine }
        return arrayItems("failing").contains { $0.member("role")?.scalarText == "gateway" } ? .noGateway : .noWorker
    }
}
