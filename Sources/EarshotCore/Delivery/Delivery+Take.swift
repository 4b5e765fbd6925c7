internal import EarshotWire

/// TAKE: exclusive ownership of a file, so that its receiver moves it instead of copying it.
///
/// The broker transfers a file if one terminal is its only use, and if only one session ever knew it. The shell then
/// renames it, which proves that no other file system entry refers to it. A file with the new name belongs
/// to that session until the acknowledgement: a redelivery names it, and no other terminal does.
extension Delivery {
    /// The file that the sender of a TAKE may own; nil if there is none.
    static func fileOwnableByTake(
        _ sequence: UInt64, by client: Handle<ClientSession>, in records: inout Records
    ) -> FileRenameForTake? {
        guard !records.bodyPulls.contains(client),
            let interest = records.clients[client].deliveries.sentTerminal(atSequence: sequence)?.interest,
            let file = records.fileNamedInTerminal(of: interest), !SpoolName.isTakenFile(file),
            !records.isDurable(interest), records.requests[interest].outstandingDeliveryCount == 1
        else { return nil }
        let outcome = records.outcome(of: interest)
        // Operands are separated by one space.
        guard records.outcomes[outcome].referenceCount == 1,
            records.outcomes.isFileExclusive(file, to: records.clients[client].generation),
            !records.workerLimits.spoolPath.contains("  ")
        else { return nil }
        let newName = SpoolName.takenFile(records.nextSerial(), by: records.workerLimits.broker)
        return FileRenameForTake(currentName: file, newName: newName, outcome: outcome)
    }

    /// Ends a TAKE. A file that was refused once is never transferred, so that a repetition gets the same answer.
    ///
    /// - Returns: the answer; nil if no terminal with a file has this number.
    static func completeTake(
        _ sequence: UInt64, by client: Handle<ClientSession>, in records: inout Records
    ) -> BrokerMessage? {
        guard !records.bodyPulls.contains(client),
            let due = records.clients[client].deliveries.sentTerminal(atSequence: sequence),
            let file = records.fileNamedInTerminal(ofDue: due)
        else { return nil }
        let isOwn = SpoolName.isTakenFile(file)
        if !isOwn { records.outcomes.markFileShared(file) }
        return .fileTaken(sequence, path: isOwn ? records.workerLimits.spoolPath + "/" + file : nil)
    }

    /// Whether a repeated request would receive a file that another client owns. It gets a new fetch instead.
    static func isFileOwnedByAnother(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>,
        in records: inout Records
    ) -> Bool {
        guard records.requests[interest].phase == .delivering, fetch.options.subscribes,
            records.requests[interest].contentHash == fingerprint, !isTerminalDue(interest, to: client, in: &records),
            let outcome = records.requests[interest].outcome, let file = records.outcomes[outcome].response?.bodyFile
        else { return false }
        return SpoolName.isTakenFile(file)
    }

    // MARK: Sessions that know a file

    /// Records that a terminal with a file is sent to a client.
    static func recordFileReader(
        _ client: Handle<ClientSession>, ofFileOf due: DueTerminal, in records: inout Records
    ) {
        guard let file = records.fileNamedInTerminal(ofDue: due) else { return }
        records.outcomes.extendFileAudience(file, to: .onlySession(records.clients[client].generation))
    }

    /// Records that a client learns of the file in which the body of an open request grows.
    static func recordFileReader(
        _ client: Handle<ClientSession>, ofGrowing interest: Handle<Interest>, in records: inout Records
    ) {
        let flight = records.lastRedirectedFlight(ofOpen: interest)
        guard case .running(let worker) = records.flights[flight].phase,
            var part = records.workers[worker].leases[records.currentAttempt(of: flight)]?.partFile
        else { return }
        part.fileAudience.formUnion(.onlySession(records.clients[client].generation))
        records.workers.recordPartFile(part, of: records.currentAttempt(of: flight), at: worker)
    }
}

/// A file to rename before a TAKE is answered.
public struct FileRenameForTake: Equatable, Sendable {
    /// Its present name.
    public let currentName: String
    /// Its name from then on.
    public let newName: String
    let outcome: Handle<Outcome>
}

/// Sessions that know a spool file. It never shrinks: a session that has ended may still have the file open.
enum FileAudience: Equatable {
    case knownToNoSession
    /// Only the session with this generation.
    case onlySession(UInt64)
    /// Several sessions, a session of an earlier broker, the cache, or the table of durable requests.
    case multipleOrUnknown

    mutating func formUnion(_ other: FileAudience) {
        if self == .knownToNoSession {
            self = other
        } else if other != .knownToNoSession, other != self {
            self = .multipleOrUnknown
        }
    }
}
