internal import EarshotHTTP
public import EarshotWire

/// Parts of interrupted transfers: from the lease of an attempt into `PartStore`, and from there to the next attempt.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends early, the shell takes the file
/// back under `keptName` and reports it with `partKept`, before it reports the end.
extension BrokerCore {
    /// What the shell calls the file of an attempt that it has taken back.
    public static func keptName(of attempt: AttemptID) -> String { "\(attempt).kept" }

    // MARK: Events

    /// The file of an attempt was taken back from a worker that is about to be done with it, or is dead. It holds so
    /// many bytes.
    public mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        guard !workers.partKept(of: attempt, bytes: bytes, by: id) else { return }
        actions.append(.removePart(Self.keptName(of: attempt)))
    }

    /// The expiry timer of a part set aside.
    mutating func asideEnded(_ serial: UInt64) { delete(parts.expire(serial)) }

    // MARK: Queries

    /// The files in which the bodies of a worker's attempts grow, as far as anything could go on with them.
    public func parts(of id: WorkerID) -> [(attempt: AttemptID, file: String)] {
        guard let worker = workers.number(of: id) else { return [] }
        return workers[worker].leasesInOrder.compactMap { attempt, lease in
            guard let part = lease.part, !part.fields.isEmpty, lease.orphan == nil else { return nil }
            return (attempt, part.file)
        }
    }

    /// The file that `parts` names for this attempt; nil if there is none.
    public func part(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard let part = workers.lease(attempt, by: id)?.part, !part.fields.isEmpty else { return nil }
        return part.file
    }

    // MARK: Steps

    /// A worker told of the file it writes: another than before begins with another representation's first byte.
    mutating func partTold(_ told: BodyPart?, of attempt: AttemptID, at worker: Int32) {
        guard let told, let lease = workers[worker].leases[attempt],
            ["part", "anew.part"].contains(where: { told.file == "\(workers[worker].pid)-\(attempt).\($0)" })
        else { return }
        // A body with longer fields has no RESULT: no later attempt goes on with it.
        let lines = told.httpFields.count <= WireLimits.responseFieldBytes ? told.httpFields : []
        let isNew = lease.part?.file != told.file
        guard isNew || !lines.isEmpty else { return }
        let part = GrowingPart(
            file: told.file, fields: HeaderFields(lines: lines),
            generation: isNew ? attempt : lease.part?.generation ?? attempt)
        workers.partTold(part, of: attempt, at: worker)
    }

    /// Keeps the part of an attempt that has ended, for its flight or, if that has ended too, for a later one.
    mutating func keepPart(of lease: WorkerLease, _ attempt: AttemptID) {
        guard let bytes = lease.keptBytes else { return }
        let file = Self.keptName(of: attempt)
        let request = lease.flight.map { flights[$0].request } ?? lease.abandoned?.request
        guard let growing = lease.part, let request,
            let body = ResumeRule().beginning(
                Int64(bytes), status: 200, response: growing.fields, of: request, now: calendarSeconds)
        else {
            actions.append(.removePart(file))
            return
        }
        let part = KeptPart(file: file, body: body, fields: growing.fields, generation: growing.generation)
        if let flight = lease.flight {
            delete(parts.keep(part, for: flight))
        } else if let key = lease.abandoned?.key {
            if let successor = openFlight(key), !flights[successor].isRunning, !parts.hasPart(of: successor) {
                delete(parts.keep(part, for: successor))
            } else {
                putAside(part, key)
            }
        }
    }

    /// Sets the part of a flight that ends aside.
    mutating func putPartAside(of flight: Int32) {
        guard let part = parts.take(flight) else { return }
        putAside(part, flights[flight].key)
    }

    private mutating func putAside(_ part: KeptPart, _ key: FlightKey) {
        let (serial, deleted) = parts.setAside(part, under: key)
        for part in deleted { delete(part) }
        guard let serial else { return }
        setTimer(clock.advanced(byMilliseconds: limits.asideMilliseconds), .aside(serial: serial))
    }

    /// Lends a worker the part of a flight, if the flight may resume it. Deletes a part that it may not resume.
    ///
    /// - Returns: the JOB's description of the part, and the file under the worker's name for it.
    mutating func lendPart(
        of flight: Int32, as attempt: AttemptID, to worker: Int32, maxBytes: Int?
    ) -> (resume: Job.Resume, part: GrowingPart)? {
        guard let part = parts.take(flight) else { return nil }
        guard part.bytes <= maxBytes ?? .max, let validator = part.body.validator.ifRange else {
            delete(part)
            return nil
        }
        let file = "\(workers[worker].pid)-\(attempt).part"
        actions.append(.lendPart(part.file, as: file))
        let total = part.body.totalBytes.map { Int($0) }
        return (
            Job.Resume(bytes: part.bytes, total: total, validator: validator),
            GrowingPart(file: file, fields: part.fields, generation: part.generation)
        )
    }

    mutating func delete(_ part: KeptPart?) {
        if let part { actions.append(.removePart(part.file)) }
    }
}
