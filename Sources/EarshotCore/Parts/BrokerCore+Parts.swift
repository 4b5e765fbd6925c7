internal import EarshotHTTP
public import EarshotWire

/// Partial bodies of interrupted transfers: their path from the lease of an attempt to `PartStore` or the shell's folder of
/// parts, and from there to the next attempt.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends early, the shell takes the file
/// back under `SpoolName.kept` and reports it with `partKept`, before it reports the end. If the flight has ended too, the
/// shell moves the file to the folder of parts, where later flights and brokers find it by `PartKeys`. The shell has the
/// description of each body that is large enough while it grows, so it can do that also after a crash.
extension BrokerCore {
    // MARK: Events

    /// Handles the rename of a file of a worker that ends the attempt or has died. The file has `bytes` bytes.
    public mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        guard !workers.partKept(of: attempt, bytes: bytes, by: id) else { return }
        actions.append(.spool(.removePart(SpoolName.kept(of: attempt))))
    }

    /// Handles the move of a part from the folder of parts to the file of an attempt whose JOB follows.
    ///
    /// - Parameter isVerified: whether all bytes count. Otherwise the worker compares their hash before it uses them.
    public mutating func partFound(
        _ part: PartDescription, bytes: Int, isVerified: Bool = true, for attempt: AttemptID, by id: WorkerID
    ) {
        guard let worker = workers.number(of: id), let lease = workers[worker].leases[attempt] else { return }
        let growing = GrowingPart(
            file: SpoolName.part(of: attempt, pid: Int32(clamping: workers[worker].pid)),
            fields: HeaderFields(lines: part.httpFields), generation: part.generation,
            isRecorded: isVerified, isVerified: isVerified, checkpointBytes: part.checkpoint?.bytes ?? 0)
        workers.partFound(growing, bytes: bytes, of: attempt, at: worker)
        outcomes.filesGrew(by: bytes)
        if lease.principal != PrincipalTable.administrator { quotas.spoolBytes(bytes, of: lease.principal) }
        ledger.parts.resumed += 1
        ledger.parts.resumedBytes += bytes
    }

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
        if isNew, let earlier = lease.part, earlier.isRecorded || !earlier.isVerified {
            actions.append(.spool(.removePart(earlier.file)))
        }
        guard isNew || !lines.isEmpty else {
            workers.partVerified(attempt, at: worker)
            return
        }
        var part = isNew ? nil : lease.part
        part?.fields = HeaderFields(lines: lines)
        part?.status = told.status
        part?.isVerified = true
        workers.partTold(
            part
                ?? GrowingPart(
                    file: told.file, fields: HeaderFields(lines: lines), status: told.status, generation: attempt,
                    audience: lease.part?.audience ?? .noSession),
            of: attempt, at: worker)
    }

    /// Keeps the part of an ended attempt for its flight or, if that has ended too, for a later flight.
    mutating func keepPart(of lease: WorkerLease, _ attempt: AttemptID) {
        guard let bytes = lease.keptBytes else { return }
        let file = SpoolName.kept(of: attempt)
        guard lease.part?.isVerified ?? true else {
            // The file may have more bytes than those of its checkpoint, so it goes back to the folder of parts.
            actions.append(.spool(.storePart(file)))
            return
        }
        let request = lease.flight.map { flights[$0].request } ?? lease.abandoned?.request
        guard let growing = lease.part, growing.isResumable, let request, lease.flight.map({ !isPulling($0) }) ?? true,
            let body = ResumeRule().beginning(
                Int64(bytes), status: 200, response: growing.fields, of: request, now: calendarSeconds)
        else {
            actions.append(.spool(.removePart(file)))
            return
        }
        let part = KeptPart(
            file: file, body: body, fields: growing.fields, generation: growing.generation, audience: growing.audience,
            isRecorded: growing.isRecorded)
        if let flight = lease.flight {
            delete(parts.keep(part, for: flight))
        } else if let abandoned = lease.abandoned {
            if let successor = flights.number(of: abandoned.key), !flights[successor].isRunning,
                !parts.hasPart(of: successor)
            {
                delete(parts.keep(part, for: successor))
            } else {
                store(part, abandoned.partKeys)
            }
        }
    }

    // MARK: Parts that outlive their flights

    /// Has the shell keep the part of an ending flight.
    mutating func storePart(of flight: Handle<Flight>) {
        guard let part = parts.take(flight) else { return }
        store(part, partKeys(of: flight, chargedTo: firstPrincipal(of: flight)))
    }

    private mutating func store(_ part: KeptPart, _ keys: PartKeys?) {
        guard let keys, mayOutlive(bytes: part.bytes), let description = description(of: part) else {
            return delete(part)
        }
        if !part.isRecorded { record(part.file, keys, description) }
        actions.append(.spool(.storePart(part.file)))
        hasStoredParts = true
        ledger.parts.stored += 1
    }

    /// - Parameter keys: the second of them is dropped unless tag and length identify the body at another URL.
    private mutating func record(_ file: String, _ keys: PartKeys, _ part: PartDescription) {
        var keys = keys
        if part.totalBytes == nil || !part.validator.hasPrefix("\"") { keys.texts.removeLast(keys.texts.count - 1) }
        actions.append(.spool(.recordPart(file, keys, part)))
    }

    private func description(of part: KeptPart) -> PartDescription? {
        part.body.validator.ifRange.map {
            PartDescription(
                validator: $0, totalBytes: part.body.totalBytes.map { Int($0) }, httpFields: part.fields.bytes,
                generation: part.generation)
        }
    }

    private func mayOutlive(bytes: Int) -> Bool {
        facilities.isKeepingParts && bytes >= limits.leastPartBytes && bytes <= limits.partsBytes
    }

    /// Has the shell store the description of a growing body, once it is large enough, and again at each checkpoint.
    mutating func recordPart(
        of attempt: AttemptID, _ flight: Handle<Flight>, _ checkpoint: Checkpoint? = nil,
        at worker: Handle<WorkerSession>
    ) {
        guard facilities.isKeepingParts, let lease = workers[worker].leases[attempt], let part = lease.part else {
            return
        }
        // A worker that reports more of them than it may costs nothing.
        let checkpoint = checkpoint.flatMap {
            // No sum: the head of a part may name any number.
            $0.bytes - part.checkpointBytes >= limits.leastCheckpointBytes ? $0 : nil
        }
        guard
            part.isResumable, !part.isRecorded || checkpoint != nil, mayOutlive(bytes: lease.receivedBytes),
            !isPulling(flight), let keys = partKeys(of: flight, chargedTo: lease.principal),
            let body = ResumeRule().beginning(
                Int64(lease.receivedBytes), status: 200, response: part.fields, of: flights[flight].request,
                now: calendarSeconds),
            let validator = body.validator.ifRange
        else { return }
        let description = PartDescription(
            validator: validator, totalBytes: body.totalBytes.map { Int($0) }, httpFields: part.fields.bytes,
            generation: part.generation, checkpoint: checkpoint)
        record(part.file, keys, description)
        workers.partRecorded(attempt, checkpoint: checkpoint?.bytes, at: worker)
    }

    /// Keys of the part of a flight; nil if it may not outlive the flight. A request with a jar sends cookies that the key
    /// does not contain.
    ///
    /// - Parameter principal: the one that the part is charged to.
    func partKeys(of flight: Handle<Flight>, chargedTo principal: Handle<Principal>) -> PartKeys? {
        guard facilities.isKeepingParts, limits.partsBytes > 0 else { return nil }
        let record = flights[flight]
        // A flight that principals share would give the part of one to another, whose response may be private. The contents
        // of certificate files may change.
        guard record.method == .get, !record.isAlone, record.jar == nil, record.mode != .noStore,
            record.route.files.isEmpty, record.partition != nil || settings[.shareBetweenUsers] != 1,
            record.url.scheme == "http" || record.url.scheme == "https",
            record.fields.isEmpty
                || !record.request.choosesItsAnswer && !CacheControl(request: record.fields).noStore
        else { return nil }
        var texts = [Self.text(record.key)]
        var first = flight
        while let parent = flights[first].parents.first { first = parent }
        // Not the key of the first URL itself, whose own response has no part of this body.
        if first != flight { texts.append("redirected\n" + Self.text(flights[first].key)) }
        return PartKeys(
            texts: texts, owner: principal == PrincipalTable.administrator ? nil : principals.name(of: principal))
    }

    // A URL contains no LF.
    private static func text(_ key: FlightKey) -> String { "\(key.url)\n\(key.variant)" }

    // MARK: The next attempt of a flight

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
            GrowingPart(
                file: file, fields: part.fields, generation: part.generation, audience: part.audience,
                isRecorded: part.isRecorded)
        )
    }

    mutating func delete(_ part: KeptPart?) {
        if let part { actions.append(.spool(.removePart(part.file))) }
    }
}
