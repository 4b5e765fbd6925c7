internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire
internal import LibCrypto
internal import Logging

/// Work on files: before events of workers unfinished files are kept or removed and finished ones named, before a TAKE a
/// file is renamed, and bodies become files.
extension BrokerProcess {
    /// Does the work that precedes a message.
    ///
    /// - Returns: the message for the core, a failure if the file is not as the message says, and the inline body.
    func carryOut(
        _ work: FileWork, before message: WorkerMessage, _ body: [UInt8]?, by worker: WorkerID
    ) -> (WorkerMessage, [UInt8]?) {
        for part in work.parts { carryOut(part, by: worker, pid: self.work.pid(of: worker.rawValue)) }
        guard case .done(var completion) = message else { return (message, body) }
        switch work.body {
        case .none, .finished, .unwanted: break
        case .foreign: return (FileFault.mismatch.failure(of: completion), body)
        case .received(let isLarge): return received(completion, body ?? [], isLarge: isLarge)
        }
        if let file = completion.file {
            guard SpoolName.isPart(file, of: completion.attempt, pid: self.work.pid(of: worker.rawValue)),
                finish(work.body, file, &completion)
            else { return (fileFault(file, of: completion).failure(of: completion), body) }
        }
        // A worker may add an empty frame to a DONE with a file.
        return (.done(completion), completion.file == nil ? body : nil)
    }

    /// Stores a large body of a worker on another machine in a file. The broker computes the hash and ignores that of
    /// DONE.
    private func received(
        _ reported: Completion, _ bytes: [UInt8], isLarge: Bool
    ) -> (WorkerMessage, [UInt8]?) {
        var completion = reported
        guard !bytes.isEmpty else {
            completion.sha256 = nil
            return (.done(completion), nil)
        }
        guard isLarge else {
            completion.sha256 = SHA256.digest(of: bytes.span).hex
            return (.done(completion), bytes)
        }
        completion.file = write(bytes)
        completion.sha256 = completion.file
        return completion.file == nil ? (FileFault.unwritable.failure(of: completion), nil) : (.done(completion), nil)
    }

    /// Does the work that precedes a TAKE.
    func renameFile(toTake sequence: UInt64, by client: ClientID) {
        guard let file = core.fileToTake(sequence, by: client), spool.makeExclusive(file.file, as: file.newName) else {
            return
        }
        core.fileTaken(file)
    }

    /// Does the work that precedes the loss of a worker whose process has ended.
    func keepParts(of worker: WorkerID, pid: Int32) {
        for part in core.fileWork(beforeLossOf: worker).parts { carryOut(part, by: worker, pid: pid) }
    }

    private func carryOut(_ part: FileWork.Part, by worker: WorkerID, pid: Int32) {
        guard SpoolName.isPart(part.file, of: part.attempt, pid: pid) else { return }
        guard let name = part.keptName else {
            spool.remove(part.file)
            parts?.forget(part.file)
            return
        }
        guard let bytes = spool.keepPart(part.file, as: name) else {
            parts?.forget(part.file)
            return
        }
        parts?.renamed(part.file, to: name)
        core.partKept(of: part.attempt, bytes: bytes, by: worker)
    }

    // MARK: Finished files

    /// Gives a finished file its name, or removes one that no attempt waits for.
    ///
    /// - Returns: whether the file was as the completion says, which now has its name.
    private func finish(_ body: FileWork.Body, _ file: String, _ completion: inout Completion) -> Bool {
        parts?.forget(file)
        switch body {
        case .none, .foreign, .received, .finished(name: nil): return false
        case .unwanted:
            spool.remove(file)
            completion.file = nil
        case .finished(let name?):
            guard spool.adopt(file, as: name, length: completion.length) else { return false }
            completion.file = name
            bodies.unwritten.remove(name)
        }
        return true
    }

    /// Returns why a file was not adopted, after a look at the spool or a line in the log.
    private func fileFault(_ file: String, of completion: Completion) -> FileFault {
        if spool.mayHaveLost(file) {
            watchedPaths?.look()
            return .lost
        }
        let metadata: Logger.Metadata = [
            "attempt": "\(completion.attempt)", "bytes": "\(spool.length(of: file).map(String.init) ?? "none")",
            "said": "\(completion.length)",
        ]
        logger.error("a worker's file is missing or differs from its DONE", metadata: metadata)
        return .mismatch
    }

    // MARK: Forms

    /// Writes a body into the spool, which is made again first if it was removed.
    ///
    /// - Returns: the file's name; nil if the disk does not take it.
    private func write(_ bytes: [UInt8], as expected: String? = nil) -> String? {
        spool.write(bytes, as: expected)
            ?? (spool.isInPlace || watchedPaths?.look() != true ? nil : spool.write(bytes, as: expected))
    }

    /// Writes the file that some terminals name. Without it they are sent as failures.
    func makeFile(_ file: String, of id: BodyID) {
        guard let bytes = bodies[id] ?? bodies.spilled(SpoolName.waiting(sha256: file)), write(bytes, as: file) != nil
        else {
            logger.error("cannot write a body into the spool, or its digest differs from the worker's")
            bodies.unwritten.insert(file)
            return
        }
    }

    /// Returns the head of a terminal with its body, from memory, from the spilled bodies, or from a file.
    func message(of terminal: Terminal, _ body: BodyID?) -> (head: [UInt8], body: [UInt8]?) {
        guard let response = terminal.response, let name = response.file?.split(separator: "/").last.map(String.init)
        else { return (terminal.encoded(), body.flatMap { bodies[$0] }) }
        guard !bodies.unwritten.contains(name) else { return (terminal.replaced(by: .spoolFull).encoded(), nil) }
        let bytes = bodies.spilled(name)
        guard bytes != nil || response.isInline else { return (terminal.encoded(), nil) }
        guard let bytes = bytes ?? spool.read(name, limit: response.length) else {
            return (terminal.replaced(by: .internalError).encoded(), nil)
        }
        return (terminal.withoutFile().encoded(), bytes)
    }
}
