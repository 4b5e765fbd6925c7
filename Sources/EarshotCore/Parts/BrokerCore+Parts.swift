internal import EarshotHTTP
public import EarshotWire

/// Partial bodies of interrupted transfers: their path from the lease of an attempt to `PartStore`, and from there to
/// the next attempt.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends early, the shell takes the file
/// back under `SpoolName.kept` and reports it with `partKept`, before it reports the end.
extension BrokerCore {
    // MARK: Events

    /// Handles the rename of a file of a worker that ends the attempt or has died. The file has `bytes` bytes.
    public mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        guard !workers.partKept(of: attempt, bytes: bytes, by: id) else { return }
        actions.append(.spool(.removePart(SpoolName.kept(of: attempt))))
    }

    /// Handles the expiry of a part that was set aside.
    mutating func asideEnded(_ serial: UInt64) { delete(parts.expire(serial)) }

    // MARK: Queries

    /// Returns the resumable files of a worker's attempts.
    func parts(of id: WorkerID) -> [(attempt: AttemptID, file: String)] {
        guard let worker = workers.number(of: id) else { return [] }
        return workers[worker].leasesInOrder.compactMap { attempt, lease in
            guard let part = lease.part, part.isResumable else { return nil }
            return (attempt, part.file)
        }
    }

    /// Returns the file that `parts` contains for this attempt; nil if there is none.
    func part(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard let part = workers.lease(attempt, by: id)?.part, part.isResumable else { return nil }
        return part.file
    }

    // MARK: Steps

    /// Handles a worker's report of its file. Another file than before starts with the first byte of another
    /// representation.
    mutating func partTold(_ told: BodyPart?, of attempt: AttemptID, at worker: Handle<WorkerSession>) {
        guard let told, !workers[worker].isRemote, let lease = workers[worker].leases[attempt],
            SpoolName.isPart(told.file, of: attempt, pid: Int32(clamping: workers[worker].pid))
        else { return }
        // RESULT cannot carry longer fields, so no later attempt resumes this body.
        let lines = told.httpFields.count <= WireLimits.responseFieldBytes ? told.httpFields : []
        let isNew = lease.part?.file != told.file
        guard isNew || !lines.isEmpty else { return }
        let part = GrowingPart(
            file: told.file, fields: HeaderFields(lines: lines), status: told.status,
            generation: isNew ? attempt : lease.part?.generation ?? attempt,
            audience: lease.part?.audience ?? .noSession)
        workers.partTold(part, of: attempt, at: worker)
    }

    /// Keeps the part of an ended attempt for its flight or, if that has ended too, for a later flight.
    mutating func keepPart(of lease: WorkerLease, _ attempt: AttemptID) {
        guard let bytes = lease.keptBytes else { return }
        let file = SpoolName.kept(of: attempt)
        let request = lease.flight.map { flights[$0].request } ?? lease.abandoned?.request
        guard let growing = lease.part, growing.isResumable, let request, lease.flight.map({ !isPulling($0) }) ?? true,
            let body = ResumeRule().beginning(
                Int64(bytes), status: 200, response: growing.fields, of: request, now: calendarSeconds)
        else {
            actions.append(.spool(.removePart(file)))
            return
        }
        let part = KeptPart(
            file: file, body: body, fields: growing.fields, generation: growing.generation, audience: growing.audience)
        if let flight = lease.flight {
            delete(parts.keep(part, for: flight))
        } else if let key = lease.abandoned?.key {
            if let successor = flights.number(of: key), !flights[successor].isRunning, !parts.hasPart(of: successor) {
                delete(parts.keep(part, for: successor))
            } else {
                putAside(part, key)
            }
        }
    }

    /// Sets the part of an ending flight aside.
    mutating func putPartAside(of flight: Handle<Flight>) {
        guard let part = parts.take(flight) else { return }
        putAside(part, flights[flight].key)
    }

    private mutating func putAside(_ part: KeptPart, _ key: FlightKey) {
        let (serial, deleted) = parts.setAside(part, under: key)
        for part in deleted { delete(part) }
        guard let serial else { return }
        setTimer(clock.advanced(byMilliseconds: limits.asideMilliseconds), .aside(serial: serial))
    }

    /// Renames the part of a flight for a worker that resumes it. Deletes a part that the flight may not resume.
    ///
    /// - Returns: the JOB's description of the part, and the file under the worker's name for it.
    mutating func lendPart(
        of flight: Handle<Flight>, as attempt: AttemptID, to worker: Handle<WorkerSession>, maxBytes: Int?
    ) -> (resume: Job.Resume, part: GrowingPart)? {
        guard let part = parts.take(flight) else { return nil }
        guard !workers[worker].isRemote, part.bytes <= maxBytes ?? .max, let validator = part.body.validator.ifRange
        else {
            delete(part)
            return nil
        }
        let file = SpoolName.part(of: attempt, pid: Int32(clamping: workers[worker].pid))
        actions.append(.spool(.lendPart(part.file, as: file)))
        let total = part.body.totalBytes.map { Int($0) }
        return (
            Job.Resume(bytes: part.bytes, total: total, validator: validator),
            GrowingPart(file: file, fields: part.fields, generation: part.generation, audience: part.audience)
        )
    }

    mutating func delete(_ part: KeptPart?) {
        if let part { actions.append(.spool(.removePart(part.file))) }
    }
}
