internal import EarshotWire

/// TAKE: exclusive ownership of a file, so that its receiver moves it instead of copying it.
///
/// The broker gives a file away if one terminal is its only use, and one session the only one that ever knew it. The
/// shell then renames it, which proves that no other file system entry refers to it. A file with the new name belongs
/// to that session until the acknowledgement: a redelivery names it, and no other terminal does.
extension BrokerCore {
    /// A file to rename before `clientSaid` answers a TAKE.
    public struct FileToTake: Equatable, Sendable {
        /// Its present name.
        public let file: String
        /// Its name from then on.
        public let newName: String
        let outcome: Handle<Outcome>
    }

    /// Begins a TAKE with the file that its sender may own; nil if there is none. The shell renames the file if it has
    /// one link, and reports that by `fileTaken`. Without a rename `clientSaid` answers that the client must copy.
    public mutating func fileToTake(_ sequence: UInt64, by id: ClientID) -> FileToTake? {
        guard let client = clients.number(of: id), !pulls.contains(client),
            let interest = clients[client].deliveries.entry(sequence)?.interest, let file = namedFile(of: interest),
            !SpoolName.isTaken(file), !isDurable(interest),
            interests[interest].outstanding == 1
        else { return nil }
        let outcome = outcomeNumber(of: interest)
        // Operands are separated by one space.
        guard outcomes[outcome].holders == 1, outcomes.isExclusive(file, to: clients[client].generation),
            !workerLimits.spool.contains("  ")
        else { return nil }
        return FileToTake(file: file, newName: SpoolName.taken(nextSerial(), by: instance), outcome: outcome)
    }

    /// Handles the rename of a file that its receiver owns from here on.
    public mutating func fileTaken(_ taken: FileToTake) {
        outcomes.renameFile(of: taken.outcome, to: taken.newName)
    }

    /// Answers TAKE. A file that was refused once is never given away, so that a repetition gets the same answer.
    mutating func takeRequested(_ sequence: UInt64, by client: Handle<ClientSession>) {
        guard !pulls.contains(client), let due = clients[client].deliveries.entry(sequence), let file = file(of: due)
        else {
            refuse(client, "unknown-body", "no such terminal with a file waits for an ACK", .take(sequence))
            return
        }
        let isOwn = SpoolName.isTaken(file)
        if !isOwn { outcomes.shareFile(file) }
        reply(.message(.taken(sequence, path: isOwn ? workerLimits.spool + "/" + file : nil)), to: client)
    }

    /// Whether a repeated request would receive a file that another client owns. It gets a new fetch instead.
    func isTakenByAnother(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>
    ) -> Bool {
        interests[interest].phase == .delivering && fetch.options.subscribes
            && interests[interest].fingerprint == fingerprint && !isDue(interest, to: client)
            && interests[interest].outcome.flatMap { outcomes[$0].response?.file }.map(SpoolName.isTaken) ?? false
    }

    // MARK: Sessions that know a file

    /// Records that a terminal with a file is sent to a client.
    mutating func noteReader(_ client: Handle<ClientSession>, ofFileOf due: DueTerminal) {
        if let file = file(of: due) { outcomes.showFile(file, to: .session(clients[client].generation)) }
    }

    /// Records that a client learns of the file in which the body of an open request grows.
    mutating func noteReader(_ client: Handle<ClientSession>, ofGrowing interest: Handle<Interest>) {
        let flight = leaf(ofOpen: interest)
        guard case .running(let worker) = flights[flight].phase,
            var part = workers[worker].leases[attempt(of: flight)]?.part
        else { return }
        part.audience.add(.session(clients[client].generation))
        workers.partTold(part, of: attempt(of: flight), at: worker)
    }
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
