internal import EarshotHTTP
internal import EarshotWire

/// Partial bodies of interrupted transfers: their path from the lease of an attempt to `PartStore` or the shell's folder of
/// parts, and from there to the next attempt.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends early, the shell takes the file
/// back under `SpoolName.keptPart` and reports it with `partKept`, before it reports the end. If the flight has ended too, the
/// shell moves the file to the folder of parts, where later flights and brokers find it by `PartKeys`. The shell has the
/// description of each body that is large enough while it grows, so it can do that also after a crash.
enum Parts {
    // MARK: Events

    /// Handles the rename of a file of a worker that ends the attempt or has died. The file has `bytes` bytes.
    static func partKept(_ attempt: AttemptID, bytes: Int, by id: WorkerID, in records: inout Records) {
        guard !records.workers.partKept(of: attempt, bytes: bytes, by: id) else { return }
        records.outbox.actions.append(.spool(.removePart(SpoolName.keptPart(of: attempt))))
    }

    /// Handles the move of a part from the folder of parts to the file of an attempt whose JOB follows.
    static func partFound(
        _ part: PartDescription, bytes: Int, isVerified: Bool, for attempt: AttemptID, by id: WorkerID,
        in records: inout Records
    ) {
        guard let worker = records.workers.handle(of: id), let lease = records.workers[worker].leases[attempt] else {
            return
        }
        let growing = GrowingPart(
            file: SpoolName.part(of: attempt, pid: Int32(clamping: records.workers[worker].pid)),
            fields: HeaderFields(lines: part.httpFields), generation: part.generation,
            audience: part.isKnown ? .others : .noSession, isRecorded: isVerified, isRecordedAsKnown: part.isKnown,
            isVerified: isVerified, checkpointBytes: part.checkpoint?.bytes ?? 0)
        records.workers.partFound(growing, bytes: bytes, of: attempt, at: worker)
        records.outcomes.filesGrew(by: bytes)
        if lease.principal != PrincipalTable.administrator { records.quotas.spoolBytes(bytes, of: lease.principal) }
        records.ledger.parts.resumed += 1
        records.ledger.parts.resumedBytes += bytes
    }

    // MARK: Attempts

    /// Handles a worker's report of its file. Another file than before starts with the first byte of another
    /// representation.
    static func reported(
        _ report: BodyPart?, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) {
        guard let report, !records.workers[worker].isRemote, let lease = records.workers[worker].leases[attempt],
            SpoolName.isPart(report.file, of: attempt, pid: Int32(clamping: records.workers[worker].pid))
        else { return }
        // RESULT cannot carry longer fields, so no later attempt resumes this body.
        let lines = report.httpFields.count <= WireLimits.responseFieldBytes ? report.httpFields : []
        let isNew = lease.part?.file != report.file
        if isNew, let earlier = lease.part, earlier.isRecorded || !earlier.isVerified {
            records.outbox.actions.append(.spool(.removePart(earlier.file)))
        }
        guard isNew || !lines.isEmpty else {
            records.workers.partVerified(attempt, at: worker)
            return
        }
        var part = isNew ? nil : lease.part
        part?.fields = HeaderFields(lines: lines)
        part?.status = report.status
        part?.isVerified = true
        records.workers.partReported(
            part
                ?? GrowingPart(
                    file: report.file, fields: HeaderFields(lines: lines), status: report.status, generation: attempt,
                    audience: lease.part?.audience ?? .noSession),
            of: attempt, at: worker)
    }

    /// Keeps the part of an ended attempt for its flight or, if that has ended too, for a later flight.
    static func attemptEnded(_ attempt: AttemptID, _ lease: WorkerLease, in records: inout Records) {
        guard let bytes = lease.keptBytes else { return }
        let file = SpoolName.keptPart(of: attempt)
        guard lease.part?.isVerified ?? true else {
            // The file may have more bytes than those of its checkpoint, so it goes back to the folder of parts.
            records.outbox.actions.append(.spool(.storePart(file)))
            return
        }
        let request = lease.flight.map { records.flights[$0].request } ?? lease.abandoned?.request
        guard let growing = lease.part, growing.isResumable, let request,
            lease.flight.map({ !records.isPulling($0) }) ?? true,
            let body = ResumeRule().beginning(
                Int64(bytes), status: 200, response: growing.fields, of: request, now: records.calendarSeconds)
        else {
            records.outbox.actions.append(.spool(.removePart(file)))
            return
        }
        let part = KeptPart(
            file: file, principal: lease.principal, body: body, fields: growing.fields, generation: growing.generation,
            audience: growing.audience, isRecorded: growing.isRecorded)
        if let flight = lease.flight {
            keepPart(part, for: flight, in: &records)
        } else if let abandoned = lease.abandoned {
            if let successor = records.flights.handle(of: abandoned.key), !records.flights[successor].isRunning,
                !records.parts.hasPart(of: successor)
            {
                keepPart(part, for: successor, in: &records)
            } else {
                store(part, abandoned.partKeys, in: &records)
            }
        }
    }

    /// Keeps a part for the next attempt of a flight instead of an earlier one, if the spool and its principal have room for it.
    private static func keepPart(_ part: KeptPart, for flight: Handle<Flight>, in records: inout Records) {
        delete(take(flight, in: &records), in: &records)
        guard records.quotas.admits(1, of: \.parts, for: part.principal, within: records.limits.keptParts),
            records.quotas.hasRoomInSpool(for: part.bytes, of: part.principal),
            records.outcomes.spooledBytes &+ records.parts.bytes &+ part.bytes <= records.limits.spoolBytes
        else { return delete(part, in: &records) }
        records.parts.keepPart(part, for: flight)
        charge(part, 1, in: &records)
    }

    private static func take(_ flight: Handle<Flight>, in records: inout Records) -> KeptPart? {
        guard let part = records.parts.take(flight) else { return nil }
        charge(part, -1, in: &records)
        return part
    }

    private static func charge(_ part: KeptPart, _ sign: Int, in records: inout Records) {
        records.quotas.share(sign, of: \.parts, by: part.principal)
        records.quotas.spoolBytes(sign * part.bytes, of: part.principal)
    }

    // MARK: Parts that outlive their flights

    /// Has the shell keep the part of an ending flight.
    static func flightEnded(_ flight: Handle<Flight>, in records: inout Records) {
        guard let part = take(flight, in: &records) else { return }
        let principal = records.firstPrincipal(of: flight)
        store(part, keys(of: flight, chargedTo: principal, in: &records), in: &records)
    }

    private static func store(_ part: KeptPart, _ keys: PartKeys?, in records: inout Records) {
        guard let keys, mayOutlive(bytes: part.bytes, in: &records), let description = description(of: part) else {
            return delete(part, in: &records)
        }
        if !part.isRecorded || part.audience != .noSession { record(part.file, keys, description, in: &records) }
        records.outbox.actions.append(.spool(.storePart(part.file)))
        records.parts.mayHaveStored = true
        records.ledger.parts.stored += 1
    }

    /// - Parameter keys: the second of them is dropped unless tag and length identify the body at another URL.
    private static func record(_ file: String, _ keys: PartKeys, _ part: PartDescription, in records: inout Records) {
        var keys = keys
        if part.totalBytes == nil || !part.validator.hasPrefix("\"") { keys.texts.removeLast(keys.texts.count - 1) }
        records.outbox.actions.append(.spool(.recordPart(file, keys, part)))
    }

    private static func description(of part: KeptPart) -> PartDescription? {
        part.body.validator.ifRange.map {
            PartDescription(
                validator: $0, totalBytes: part.body.totalBytes.map { Int($0) }, httpFields: part.fields.bytes,
                generation: part.generation, isKnown: part.audience != .noSession)
        }
    }

    private static func mayOutlive(bytes: Int, in records: inout Records) -> Bool {
        records.features.isKeepingParts && bytes >= records.limits.leastPartBytes
            && bytes <= records.limits.partsBytes
    }

    /// Has the shell store the description of a growing body, once it is large enough, and again at each checkpoint.
    static func progressed(
        _ attempt: AttemptID, of flight: Handle<Flight>, _ checkpoint: Checkpoint?, at worker: Handle<WorkerSession>,
        in records: inout Records
    ) {
        guard records.features.isKeepingParts, let lease = records.workers[worker].leases[attempt],
            let part = lease.part
        else {
            return
        }
        // A worker that reports more of them than it may costs nothing.
        let checkpoint = checkpoint.flatMap {
            // No sum: the head of a part may name any number.
            $0.bytes - part.checkpointBytes >= records.limits.leastCheckpointBytes ? $0 : nil
        }
        guard
            part.isResumable,
            !part.isRecorded || checkpoint != nil || part.audience != .noSession && !part.isRecordedAsKnown,
            mayOutlive(bytes: lease.receivedBytes, in: &records),
            !records.isPulling(flight), let keys = keys(of: flight, chargedTo: lease.principal, in: &records),
            let body = ResumeRule().beginning(
                Int64(lease.receivedBytes), status: 200, response: part.fields, of: records.flights[flight].request,
                now: records.calendarSeconds),
            let validator = body.validator.ifRange
        else { return }
        let description = PartDescription(
            validator: validator, totalBytes: body.totalBytes.map { Int($0) }, httpFields: part.fields.bytes,
            generation: part.generation, checkpoint: checkpoint, isKnown: part.audience != .noSession)
        record(part.file, keys, description, in: &records)
        records.workers.partRecorded(attempt, checkpoint: checkpoint?.bytes, at: worker)
    }

    /// Keys of the part of a flight; nil if it may not outlive the flight. A request with a jar sends cookies that the key
    /// does not contain.
    ///
    /// - Parameter principal: the one that the part is charged to.
    static func keys(
        of flight: Handle<Flight>, chargedTo principal: Handle<Principal>, in records: inout Records
    ) -> PartKeys? {
        guard records.features.isKeepingParts, records.limits.partsBytes > 0 else { return nil }
        let record = records.flights[flight]
        // A flight that principals share would give the part of one to another, whose response may be private. The contents
        // of certificate files may change.
        guard record.method == .get, !record.isAlone, record.jar == nil, record.mode != .noStore,
            record.route.files.isEmpty, record.partition != nil || records.settings[.shareBetweenUsers] != 1,
            record.url.scheme == "http" || record.url.scheme == "https",
            record.fields.isEmpty
                || !record.request.choosesItsAnswer && !CacheControl(request: record.fields).noStore
        else { return nil }
        var texts = [Self.text(record.key)]
        var first = flight
        while let parent = records.flights[extras: first].parents.first { first = parent }
        // Not the key of the first URL itself, whose own response has no part of this body.
        if first != flight { texts.append("redirected\n" + Self.text(records.flights[first].key)) }
        return PartKeys(
            texts: texts,
            owner: principal == PrincipalTable.administrator ? nil : records.principals.name(of: principal))
    }

    // A URL contains no LF.
    private static func text(_ key: FlightKey) -> String { "\(key.url)\n\(key.variant)" }

    // MARK: The next attempt of a flight

    /// Renames the part of a flight for a worker that resumes it. Deletes a part that the flight may not resume.
    ///
    /// - Returns: the JOB's description of the part, and the file under the worker's name for it.
    static func assign(
        partOf flight: Handle<Flight>, as attempt: AttemptID, to worker: Handle<WorkerSession>, maxBytes: Int?,
        in records: inout Records
    ) -> (resume: Job.Resume, part: GrowingPart)? {
        guard let part = take(flight, in: &records) else { return nil }
        guard !records.workers[worker].isRemote, part.bytes <= maxBytes ?? .max,
            let validator = part.body.validator.ifRange
        else {
            delete(part, in: &records)
            return nil
        }
        let file = SpoolName.part(of: attempt, pid: Int32(clamping: records.workers[worker].pid))
        records.outbox.actions.append(.spool(.assignPart(part.file, as: file)))
        let total = part.body.totalBytes.map { Int($0) }
        return (
            Job.Resume(bytes: part.bytes, total: total, validator: validator),
            GrowingPart(
                file: file, fields: part.fields, generation: part.generation, audience: part.audience,
                isRecorded: part.isRecorded)
        )
    }

    private static func delete(_ part: KeptPart?, in records: inout Records) {
        if let part { records.outbox.actions.append(.spool(.removePart(part.file))) }
    }
}
