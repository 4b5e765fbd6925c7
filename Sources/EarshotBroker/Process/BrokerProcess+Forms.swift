internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire
internal import LibCrypto
internal import Logging

/// Work on files. Before an event of a worker, its unfinished files are kept or removed, and its finished ones renamed.
/// Before a TAKE, its file is renamed. Bodies that terminals name are written into files.
extension BrokerProcess {
    /// Does the work that precedes a message.
    ///
    /// - Returns: The message for the core, a failure if the file contradicts the message; and the inline body.
    func carryOutFileWork(
        _ work: WorkerFileOperations, before message: WorkerMessage, _ body: [UInt8]?, by worker: WorkerID
    ) -> (WorkerMessage, [UInt8]?) {
        for part in work.unfinishedFiles {
            carryOutPartWork(part, by: worker, pid: self.workerPort.pid(of: worker.rawValue))
        }
        guard case .completed(var completion) = message else { return (message, body) }
        switch work.body {
        case .noFile, .rename, .removeOfOtherAttempt: break
        case .rejectFromRemoteWorker:
            return (FinishedFileFailure.fileMismatchesDone.failureMessage(for: completion), body)
        case .storeReceivedBody(let isLarge): return storeRemoteBody(completion, body ?? [], isLarge: isLarge)
        }
        if let file = completion.fileName {
            guard SpoolName.isPart(file, of: completion.attempt, pid: self.workerPort.pid(of: worker.rawValue)),
                finishFile(work.body, file, &completion)
            else { return (adoptionFault(file, of: completion).failureMessage(for: completion), body) }
        }
        // A worker may add an empty frame to a DONE with a file.
        return (.completed(completion), completion.fileName == nil ? body : nil)
    }

    /// Stores a large body of a worker on another machine in a file. The broker computes the hash and ignores that of
    /// DONE.
    private func storeRemoteBody(_ reported: Completion, _ bytes: [UInt8], isLarge: Bool) -> (WorkerMessage, [UInt8]?) {
        var completion = reported
        guard !bytes.isEmpty else {
            completion.sha256 = nil
            return (.completed(completion), nil)
        }
        guard isLarge else {
            completion.sha256 = SHA256.digest(of: bytes.span).hex
            return (.completed(completion), bytes)
        }
        completion.fileName = writeBody(bytes)
        completion.sha256 = completion.fileName
        return completion.fileName == nil
            ? (FinishedFileFailure.spoolUnwritable.failureMessage(for: completion), nil) : (.completed(completion), nil)
    }

    /// Does the work that precedes a TAKE.
    func renameFileBeforeTake(_ sequence: UInt64, by client: ClientID) {
        guard let file = core.beginFileTake(sequence, by: client),
            spool.renameForReceiver(file.currentName, to: file.newName)
        else {
            return
        }
        core.fileTaken(file)
    }

    /// Does the work that precedes the loss of a worker whose process has ended.
    func keepPartsOfEndedWorker(_ worker: WorkerID, pid: Int32) {
        for part in core.fileWork(beforeLossOf: worker).unfinishedFiles { carryOutPartWork(part, by: worker, pid: pid) }
    }

    private func carryOutPartWork(_ part: WorkerFileOperations.UnfinishedFile, by worker: WorkerID, pid: Int32) {
        guard SpoolName.isPart(part.fileName, of: part.attempt, pid: pid) else { return }
        guard let name = part.newFileName else {
            spool.remove(part.fileName)
            parts?.removeDescription(ofFile: part.fileName)
            return
        }
        guard let bytes = spool.reclaimPart(part.fileName, as: name) else {
            parts?.removeDescription(ofFile: part.fileName)
            return
        }
        parts?.fileRenamed(part.fileName, to: name)
        core.partFileKept(of: part.attempt, bytes: bytes, by: worker)
    }

    // MARK: Finished files

    /// Renames a finished file to its final name, or removes one that no attempt waits for.
    ///
    /// - Returns: Whether the file matched the completion, which now has the final name.
    private func finishFile(
        _ body: WorkerFileOperations.DoneFileDisposition, _ file: String, _ completion: inout Completion
    ) -> Bool {
        parts?.removeDescription(ofFile: file)
        switch body {
        case .noFile, .rejectFromRemoteWorker, .storeReceivedBody, .rename(name: nil): return false
        case .removeOfOtherAttempt:
            spool.remove(file)
            completion.fileName = nil
        case .rename(let name?):
            guard spool.adopt(file, as: name, length: completion.bodyByteCount) else { return false }
            completion.fileName = name
            bodies.unwrittenFileNames.remove(name)
        }
        return true
    }

    /// Returns the reason why a file was not adopted. Checks the folders if the spool lost the file; otherwise logs an
    /// error.
    private func adoptionFault(_ file: String, of completion: Completion) -> FinishedFileFailure {
        if spool.mayHaveLostFile(file) {
            watchedPaths?.checkPaths()
            return .spoolRemoved
        }
        let metadata: Logger.Metadata = [
            "attempt": "\(completion.attempt)", "bytes": "\(spool.length(of: file).map(String.init) ?? "none")",
            "said": "\(completion.bodyByteCount)",
        ]
        logger.error("a worker's file is missing or differs from its DONE", metadata: metadata)
        return .fileMismatchesDone
    }

    // MARK: Forms

    /// Writes a body into the spool, which is created again first if it was removed.
    ///
    /// - Returns: The file's name; nil if the disk does not accept it.
    private func writeBody(_ bytes: [UInt8], expectedName expected: String? = nil) -> String? {
        if let name = spool.writeContent(bytes, expectedName: expected) { return name }
        guard !spool.isInPlace, watchedPaths?.checkPaths() == true else { return nil }
        return spool.writeContent(bytes, expectedName: expected)
    }

    /// Writes the file that some terminals name. Without it they are sent as failures.
    func writeBodyFile(_ file: String, of id: BodyID) {
        guard let bytes = bodies[id] ?? bodies.readSpilledBody(named: SpoolName.spilledBody(sha256: file)),
            writeBody(bytes, expectedName: file) != nil
        else {
            logger.error("cannot write a body into the spool, or its digest differs from the worker's")
            bodies.unwrittenFileNames.insert(file)
            return
        }
    }

    /// Returns the head of a terminal with its body, from memory, from the spilled bodies, or from a file.
    func terminalMessage(_ terminal: Terminal, _ body: BodyID?) -> (head: [UInt8], body: [UInt8]?) {
        guard let response = terminal.response,
            let name = response.bodyFilePath?.split(separator: "/").last.map(String.init)
        else { return (terminal.encoded(), body.flatMap { bodies[$0] }) }
        guard !bodies.unwrittenFileNames.contains(name) else {
            return (terminal.replacedByFailure(.spoolFull).encoded(), nil)
        }
        let bytes = bodies.readSpilledBody(named: name)
        guard bytes != nil || response.isInline else { return (terminal.encoded(), nil) }
        guard let bytes = bytes ?? spool.read(name, limit: response.bodyByteCount) else {
            return (terminal.replacedByFailure(.internalError).encoded(), nil)
        }
        return (terminal.withoutFile().encoded(), bytes)
    }
}
