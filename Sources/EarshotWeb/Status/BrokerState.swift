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
    let json: [UInt8]

    /// Parses an answer; nil if it is not a JSON object.
    init?(_ json: [UInt8]) {
        guard case .object(let members)? = JSONValue(json) else { return nil }
        self.members = members
        self.json = json
    }

    /// Start of the next page of workers; nil for none.
    var nextWorkers: String? { self["workers-next"]?.text }

    /// Adds a further page of workers.
    mutating func add(workers json: [UInt8]) {
        guard let page = JSONValue(json), case .array(let more)? = page.member("workers"),
            case .array(let workers)? = self["workers"]
        else { return set("workers-next", nil) }
        set("workers", .array(workers + more))
        set("workers-next", page.member("workers-next"))
    }

    private mutating func set(_ name: String, _ value: JSONValue?) {
        members.removeAll { $0.name == name }
        if let value { members.append(JSONValue.Member(name: name, value: value)) }
    }

    subscript(name: String) -> JSONValue? { members.first { $0.name == name }?.value }

    /// Items of an array; empty for other values.
    func items(_ name: String) -> [JSONValue] {
        guard case .array(let items)? = self[name] else { return [] }
        return items
    }

    /// Reason why the node of a cluster is without its engine; nil for a member, and for a bus on its own.
    var engineFault: String? { self["cluster"]?.member("reason")?.text }

    /// Reasons why the node of a cluster runs no flights of other nodes.
    var suspensions: [String] {
        self["cluster"]?.items("suspended").compactMap(\.text) ?? []
    }

    /// Reason why the bus is not ready for requests; nil if it is.
    ///
    /// The broker decides, in the member `ready`. The other members give the reason.
    var unreadiness: Unreadiness? {
        if self["ready"]?.text == "true" { return nil }
        if self["phase"]?.text != "serving" { return .draining }
        if self["admission"]?.text == "closed" { return .closedAdmission }
        let isLost = items("faults").contains { $0.member("state")?.text == "lost" }
        if isLost { return .lostPath }
        if self["cluster"]?.member("mode")?.text == "waiting" { return .noEngine }
        return items("failing").contains { $0.member("role")?.text == "gateway" } ? .noGateway : .noWorker
    }
}
