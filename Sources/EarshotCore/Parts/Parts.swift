internal import EarshotHTTP
internal import EarshotWire

/// Partial bodies of interrupted transfers: their path from the lease of an attempt to `PartStore` or the shell's
/// folder of parts, and from there to the next attempt.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends early, the shell takes the file
/// back under `SpoolName.keptPart` and reports it with `BrokerCore.partFileKept`, before it reports the end. If the
/// flight has ended too, the shell moves the file to the folder of parts, where later flights and brokers find it by
/// `PartKeys`. The shell has the description of each body that is large enough while it grows, so it can also do that
/// after a crash.
enum Parts {
    // MARK: Events

    /// Handles the rename of a file of a worker that ends the attempt or has died. The file has `bytes` bytes.
    static func partFileRenamed(_ attempt: AttemptID, bytes: Int, by id: WorkerID, in records: inout Records) {
        guard !records.workers.recordKeptPart(of: attempt, bytes: bytes, by: id) else { return }
        records.outbox.actions.append(.spool(.removePart(SpoolName.keptPart(of: attempt))))
    }

    /// Handles the move of a part from the folder of parts to the file of an attempt whose JOB follows.
    static func storedPartMovedToAttempt(
        _ part: PartDescription, bytes: Int, isVerified: Bool, for attempt: AttemptID, by id: WorkerID,
        in records: inout Records
    ) {
        guard let worker = records.workers.handle(of: id), let lease = records.workers[worker].leases[attempt] else {
            return
        }
        let growing = GrowingPart(
            file: SpoolName.partFile(of: attempt, pid: Int32(clamping: records.workers[worker].workerProcessID)),
            responseFields: HeaderFields(lines: part.httpFields), generation: part.generation,
            fileAudience: part.isKnownToClient ? .multipleOrUnknown : .knownToNoSession,
            isDescriptionStored: isVerified, isDescriptionStoredAsKnown: part.isKnownToClient,
            areAllBytesVerified: isVerified, lastCheckpointBytes: part.checkpoint?.byteCount ?? 0)
        records.workers.recordResumedPart(growing, bytes: bytes, of: attempt, at: worker)
        records.outcomes.growingFilesGrew(by: bytes)
        if lease.principal != PrincipalTable.administrator {
            records.quotaUse.addSpoolBytes(bytes, of: lease.principal)
        }
        records.ledger.parts.resumedParts += 1
        records.ledger.parts.resumedBytes += bytes
    }

    // MARK: Attempts

    /// Handles a worker's report of its file. Another file than before starts with the first byte of another
    /// representation.
    static func bodyPartReported(
        _ report: BodyPart?, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) {
        guard let report, !records.workers[worker].isRemote, let lease = records.workers[worker].leases[attempt],
            SpoolName.isPart(
                report.fileName, of: attempt, pid: Int32(clamping: records.workers[worker].workerProcessID))
        else { return }
        // RESULT cannot carry longer fields, so no later attempt resumes this body.
        let lines = report.httpFields.count <= WireLimits.responseFieldBytes ? report.httpFields : []
        let isNew = lease.partFile?.file != report.fileName
        if isNew, let earlier = lease.partFile, earlier.isDescriptionStored || !earlier.areAllBytesVerified {
            records.outbox.actions.append(.spool(.removePart(earlier.file)))
        }
        guard isNew || !lines.isEmpty else {
            records.workers.partUseConfirmed(attempt, at: worker)
            return
        }
        var part = isNew ? nil : lease.partFile
        part?.responseFields = HeaderFields(lines: lines)
        part?.status = report.status
        part?.areAllBytesVerified = true
        records.workers.recordPartFile(
            part
                ?? GrowingPart(
                    file: report.fileName, responseFields: HeaderFields(lines: lines), status: report.status,
                    generation: attempt, fileAudience: lease.partFile?.fileAudience ?? .knownToNoSession),
            of: attempt, at: worker)
    }

    /// Keeps the part of an ended attempt for its flight or, if that has ended too, for a later flight.
    static func attemptEnded(_ attempt: AttemptID, _ lease: WorkerLease, in records: inout Records) {
        guard let bytes = lease.renamedFileBytes else { return }
        let file = SpoolName.keptPart(of: attempt)
        guard lease.partFile?.areAllBytesVerified ?? true else {
            // The file may have more bytes than those of its checkpoint, so it goes back to the folder of parts.
            records.outbox.actions.append(.spool(.storePart(file)))
            return
        }
        let request = lease.flight.map { records.flights[$0].request } ?? lease.cancelledFlight?.request
        guard let growing = lease.partFile, growing.isResumable, let request,
            lease.flight.map({ !records.isReadingBodyFromNode($0) }) ?? true,
            let body = ResumeRule().partialBody(
                keptBytes: Int64(bytes), status: 200, response: growing.responseFields, of: request,
                now: records.calendarSeconds)
        else {
            records.outbox.actions.append(.spool(.removePart(file)))
            return
        }
        let part = KeptPart(
            spoolFile: file, principal: lease.principal, body: body, responseFields: growing.responseFields,
            generation: growing.generation, fileAudience: growing.fileAudience,
            isDescriptionStored: growing.isDescriptionStored)
        if let flight = lease.flight {
            keepPart(part, for: flight, in: &records)
        } else if let abandoned = lease.cancelledFlight {
            if let successor = records.flights.handle(of: abandoned.key), !records.flights[successor].isRunning,
                !records.keptParts.hasKeptPart(of: successor)
            {
                keepPart(part, for: successor, in: &records)
            } else {
                storeKeptPart(part, abandoned.partKeys, in: &records)
            }
        }
    }

    /// Keeps a part for the next attempt of a flight in place of an earlier part. Deletes it if the spool or the quotas
    /// of its principal have no room.
    private static func keepPart(_ part: KeptPart, for flight: Handle<Flight>, in records: inout Records) {
        deletePartFile(removeKeptPart(of: flight, in: &records), in: &records)
        guard
            records.quotaUse.admitsSharedAmount(
                1, of: \.waitingParts, for: part.principal, within: records.limits.maximumKeptParts),
            records.quotaUse.hasRoomInSpool(for: part.keptBodyBytes, of: part.principal),
            records.outcomes.spooledBytes &+ records.keptParts.keptPartBytes &+ part.keptBodyBytes
                <= records.limits.maximumSpoolBytes
        else { return deletePartFile(part, in: &records) }
        records.keptParts.keepPart(part, for: flight)
        chargePartBytes(of: part, sign: 1, in: &records)
    }

    private static func removeKeptPart(of flight: Handle<Flight>, in records: inout Records) -> KeptPart? {
        guard let part = records.keptParts.removePart(of: flight) else { return nil }
        chargePartBytes(of: part, sign: -1, in: &records)
        return part
    }

    private static func chargePartBytes(of part: KeptPart, sign: Int, in records: inout Records) {
        records.quotaUse.addSharedAmount(sign, of: \.waitingParts, by: part.principal)
        records.quotaUse.addSpoolBytes(sign * part.keptBodyBytes, of: part.principal)
    }

    // MARK: Parts that outlive their flights

    /// Has the shell keep the part of an ending flight.
    static func flightEnded(_ flight: Handle<Flight>, in records: inout Records) {
        guard let part = removeKeptPart(of: flight, in: &records) else { return }
        let principal = records.principalOfOldestRequest(of: flight)
        storeKeptPart(part, partKeys(of: flight, chargedTo: principal, in: &records), in: &records)
    }

    private static func storeKeptPart(_ part: KeptPart, _ keys: PartKeys?, in records: inout Records) {
        guard let keys, mayPersistPart(bytes: part.keptBodyBytes, in: &records),
            let description = partDescription(of: part)
        else { return deletePartFile(part, in: &records) }
        if !part.isDescriptionStored || part.fileAudience != .knownToNoSession {
            storePartDescription(part.spoolFile, keys, description, in: &records)
        }
        records.outbox.actions.append(.spool(.storePart(part.spoolFile)))
        records.keptParts.mayHaveStoredParts = true
        records.ledger.parts.storedParts += 1
    }

    /// - Parameter keys: all keys but the first are dropped unless tag and length identify the body at another URL.
    private static func storePartDescription(
        _ file: String, _ keys: PartKeys, _ part: PartDescription, in records: inout Records
    ) {
        var keys = keys
        if part.totalBytes == nil || !part.validator.hasPrefix("\"") {
            keys.keyTexts.removeLast(keys.keyTexts.count - 1)
        }
        records.outbox.actions.append(.spool(.recordPart(file, keys, part)))
    }

    private static func partDescription(of part: KeptPart) -> PartDescription? {
        part.body.validator.ifRange.map {
            PartDescription(
                validator: $0, totalBytes: part.body.totalBytes.map { Int($0) }, httpFields: part.responseFields.bytes,
                generation: part.generation, isKnownToClient: part.fileAudience != .knownToNoSession)
        }
    }

    private static func mayPersistPart(bytes: Int, in records: inout Records) -> Bool {
        records.shellFeatures.isKeepingParts && bytes >= records.limits.minimumKeptPartBytes
            && bytes <= records.limits.maximumKeptPartBytes
    }

    /// Has the shell store the description of a growing body, once it is large enough, and again at each checkpoint.
    static func bodyProgressed(
        _ attempt: AttemptID, of flight: Handle<Flight>, _ checkpoint: Checkpoint?, at worker: Handle<WorkerSession>,
        in records: inout Records
    ) {
        guard records.shellFeatures.isKeepingParts, let lease = records.workers[worker].leases[attempt],
            let part = lease.partFile
        else {
            return
        }
        // Checkpoints that a worker reports too soon are ignored, so they cost nothing.
        let checkpoint = checkpoint.flatMap {
            // The head of a part may name any number, so a sum could overflow.
            $0.byteCount - part.lastCheckpointBytes >= records.limits.minimumCheckpointDistanceBytes ? $0 : nil
        }
        let isKnownToClient = part.fileAudience != .knownToNoSession
        guard part.isResumable,
            !part.isDescriptionStored || checkpoint != nil || isKnownToClient && !part.isDescriptionStoredAsKnown,
            mayPersistPart(bytes: lease.receivedBytes, in: &records), !records.isReadingBodyFromNode(flight),
            let keys = partKeys(of: flight, chargedTo: lease.principal, in: &records),
            let body = ResumeRule().partialBody(
                keptBytes: Int64(lease.receivedBytes), status: 200, response: part.responseFields,
                of: records.flights[flight].request, now: records.calendarSeconds),
            let validator = body.validator.ifRange
        else { return }
        let description = PartDescription(
            validator: validator, totalBytes: body.totalBytes.map { Int($0) }, httpFields: part.responseFields.bytes,
            generation: part.generation, checkpoint: checkpoint, isKnownToClient: isKnownToClient)
        storePartDescription(part.file, keys, description, in: &records)
        records.workers.partDescriptionStored(attempt, checkpoint: checkpoint?.byteCount, at: worker)
    }

    /// Keys of the part of a flight; nil if it may not outlive the flight. A request with a jar sends cookies that the
    /// key does not contain.
    ///
    /// - Parameter principal: the one that the part is charged to.
    static func partKeys(
        of flight: Handle<Flight>, chargedTo principal: Handle<Principal>, in records: inout Records
    ) -> PartKeys? {
        guard records.shellFeatures.isKeepingParts, records.limits.maximumKeptPartBytes > 0 else { return nil }
        let record = records.flights[flight]
        // A flight that principals share would pass the part of one to another, although the response may be private.
        // The contents of certificate files may change.
        guard record.method == .get, !record.servesSingleRequest, record.jar == nil, record.cacheMode != .noStore,
            record.route.filePaths.isEmpty, record.partition != nil || records.settings[.shareBetweenUsers] != 1,
            record.url.scheme == "http" || record.url.scheme == "https",
            record.headerFields.isEmpty
                || !record.request.selectsResponse && !CacheControl(request: record.headerFields).noStore
        else { return nil }
        var texts = [Self.keyText(record.key)]
        var first = flight
        while let parent = records.flights[redirectsAndFailuresOf: first].parentFlights.first { first = parent }
        // Not the key of the first URL itself, whose own response has no part of this body.
        if first != flight { texts.append("redirected\n" + Self.keyText(records.flights[first].key)) }
        let owner = principal == PrincipalTable.administrator ? nil : records.principals.name(of: principal)
        return PartKeys(keyTexts: texts, owner: owner)
    }

    // A URL contains no LF.
    private static func keyText(_ key: FlightKey) -> String { "\(key.url)\n\(key.variantText)" }

    // MARK: The next attempt of a flight

    /// Renames the part of a flight for a worker that resumes it. Deletes a part that the flight may not resume.
    ///
    /// - Returns: the JOB's description of the part, and the file under the worker's name for it.
    static func assignPart(
        of flight: Handle<Flight>, as attempt: AttemptID, to worker: Handle<WorkerSession>, maximumBodyBytes: Int?,
        in records: inout Records
    ) -> (resume: Job.Resume, part: GrowingPart)? {
        guard let part = removeKeptPart(of: flight, in: &records) else { return nil }
        guard !records.workers[worker].isRemote, part.keptBodyBytes <= maximumBodyBytes ?? .max,
            let validator = part.body.validator.ifRange
        else {
            deletePartFile(part, in: &records)
            return nil
        }
        let file = SpoolName.partFile(of: attempt, pid: Int32(clamping: records.workers[worker].workerProcessID))
        records.outbox.actions.append(.spool(.assignPart(part.spoolFile, as: file)))
        let total = part.body.totalBytes.map { Int($0) }
        let resume = Job.Resume(availableBytes: part.keptBodyBytes, totalBytes: total, validator: validator)
        let growing = GrowingPart(
            file: file, responseFields: part.responseFields, generation: part.generation,
            fileAudience: part.fileAudience, isDescriptionStored: part.isDescriptionStored)
        return (resume, growing)
    }

    private static func deletePartFile(_ part: KeptPart?, in records: inout Records) {
        if let part { records.outbox.actions.append(.spool(.removePart(part.spoolFile))) }
    }
}
