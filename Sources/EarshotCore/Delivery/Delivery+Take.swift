internal import EarshotWire

/// TAKE: exclusive ownership of a file, so that its receiver moves it instead of copying it.
///
/// The broker gives a file away if one terminal is its only use, and one session the only one that ever knew it. The
/// shell then renames it, which proves that no other file system entry refers to it. A file with the new name belongs
/// to that session until the acknowledgement: a redelivery names it, and no other terminal does.
extension Delivery {
    /// The file that the sender of a TAKE may own; nil if there is none.
    static func fileToTake(
        _ sequence: UInt64, by client: Handle<ClientSession>, in records: inout Records
    ) -> FileToTake? {
        guard !records.pulls.contains(client),
            let interest = records.clients[client].deliveries.entry(sequence)?.interest,
            let file = records.namedFile(of: interest), !SpoolName.isTaken(file), !records.isDurable(interest),
            records.requests[interest].outstanding == 1
        else { return nil }
        let outcome = records.outcome(of: interest)
        // Operands are separated by one space.
        guard records.outcomes[outcome].holders == 1,
            records.outcomes.isExclusive(file, to: records.clients[client].generation),
            !records.workerLimits.spool.contains("  ")
        else { return nil }
        let newName = SpoolName.takenFile(records.nextSerial(), by: records.workerLimits.broker)
        return FileToTake(file: file, newName: newName, outcome: outcome)
    }

    /// Ends a TAKE. A file that was refused once is never given away, so that a repetition gets the same answer.
    ///
    /// - Returns: the answer; nil if no terminal with a file has this number.
    static func endTake(
        _ sequence: UInt64, by client: Handle<ClientSession>, in records: inout Records
    ) -> BrokerMessage? {
        guard !records.pulls.contains(client), let due = records.clients[client].deliveries.entry(sequence),
            let file = records.file(of: due)
        else { return nil }
        let isOwn = SpoolName.isTaken(file)
        if !isOwn { records.outcomes.shareFile(file) }
        return .taken(sequence, path: isOwn ? records.workerLimits.spool + "/" + file : nil)
    }

    /// Whether a repeated request would receive a file that another client owns. It gets a new fetch instead.
    static func isTakenByAnother(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>,
        in records: inout Records
    ) -> Bool {
        guard records.requests[interest].phase == .delivering, fetch.options.subscribes,
            records.requests[interest].fingerprint == fingerprint, !isDue(interest, to: client, in: &records),
            let outcome = records.requests[interest].outcome, let file = records.outcomes[outcome].response?.file
        else { return false }
        return SpoolName.isTaken(file)
    }

    // MARK: Sessions that know a file

    /// Records that a terminal with a file is sent to a client.
    static func noteReader(_ client: Handle<ClientSession>, ofFileOf due: DueTerminal, in records: inout Records) {
        guard let file = records.file(of: due) else { return }
        records.outcomes.showFile(file, to: .session(records.clients[client].generation))
    }

    /// Records that a client learns of the file in which the body of an open request grows.
    static func noteReader(
        _ client: Handle<ClientSession>, ofGrowing interest: Handle<Interest>, in records: inout Records
    ) {
        let flight = records.leaf(ofOpen: interest)
        guard case .running(let worker) = records.flights[flight].phase,
            var part = records.workers[worker].leases[records.attempt(of: flight)]?.part
        else { return }
        part.audience.add(.session(records.clients[client].generation))
        records.workers.partReported(part, of: records.attempt(of: flight), at: worker)
    }
}

/// A file to rename before a TAKE is answered.
public struct FileToTake: Equatable, Sendable {
    /// Its present name.
    public let file: String
    /// Its name from then on.
    public let newName: String
    let outcome: Handle<Outcome>
}

/// Sessions that know a spool file. It never shrinks: a session that has ended may still have the file open.
enum FileAudience: Equatable {
    case noSession
    /// Only the session with this generation.
    case session(UInt64)
    /// Several sessions, a session of an earlier broker, the cache, or the table of durable requests.
    case others

    mutating func add(_ other: FileAudience) {
        if self == .noSession { self = other } else if other != .noSession, other != self { self = .others }
    }
}
