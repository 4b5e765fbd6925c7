internal import EarshotCore
internal import EarshotWire
internal import LibCrypto
internal import Logging

/// File work before events of workers: unfinished files are kept or removed, finished ones named, and bodies brought into
/// the forms that their clients want.
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
        case .foreign: return (FileFault.notAsSaid.failure(of: completion), body)
        case .received(let isLarge): return received(completion, body ?? [], isLarge: isLarge, work.wishes)
        }
        if let file = completion.file {
            guard SpoolName.isPart(file, of: completion.attempt, pid: self.work.pid(of: worker.rawValue)),
                finish(work.body, file, &completion)
            else { return (fault(file, of: completion).failure(of: completion), body) }
        }
        if work.wishes.file, completion.file == nil, let bytes = body, !bytes.isEmpty {
            completion.file = write(bytes)
            return (.done(completion), body)
        }
        guard body == nil, let file = completion.file, completion.length <= work.wishes.inlineBytes else {
            return (.done(completion), body)
        }
        return (.done(completion), spool.read(file, limit: work.wishes.inlineBytes))
    }

    /// Brings the body of a worker on another machine into the forms that its clients want. The broker computes
    /// the hash and ignores that of DONE.
    private func received(
        _ told: Completion, _ bytes: [UInt8], isLarge: Bool, _ wishes: BodyWishes
    ) -> (WorkerMessage, [UInt8]?) {
        var completion = told
        guard !bytes.isEmpty else {
            completion.sha256 = nil
            return (.done(completion), nil)
        }
        guard isLarge || wishes.file else {
            completion.sha256 = SHA256.digest(of: bytes.span).hex
            return (.done(completion), bytes)
        }
        completion.file = write(bytes)
        completion.sha256 = completion.file ?? SHA256.digest(of: bytes.span).hex
        guard completion.file != nil || !isLarge else { return (FileFault.unwritable.failure(of: completion), nil) }
        return (.done(completion), isLarge && bytes.count > wishes.inlineBytes ? nil : bytes)
    }

    /// Does the work that precedes the loss of a worker whose process has ended.
    func keepParts(of worker: WorkerID, pid: Int32) {
        for part in core.fileWork(beforeLossOf: worker).parts { carryOut(part, by: worker, pid: pid) }
    }

    private func carryOut(_ part: FileWork.Part, by worker: WorkerID, pid: Int32) {
        guard SpoolName.isPart(part.file, of: part.attempt, pid: pid) else { return }
        guard let name = part.keptName else {
            spool.remove(part.file)
            return
        }
        guard let bytes = spool.keep(part.file, as: name) else { return }
        core.partKept(of: part.attempt, bytes: bytes, by: worker)
    }

    // MARK: Finished files

    /// Gives a finished file its name, or removes one that no attempt waits for.
    ///
    /// - Returns: whether the file was as the completion says, which now has its name.
    private func finish(_ body: FileWork.Body, _ file: String, _ completion: inout Completion) -> Bool {
        switch body {
        case .none, .foreign, .received, .finished(name: nil): return false
        case .unwanted:
            spool.remove(file)
            completion.file = nil
        case .finished(let name?):
            guard spool.adopt(file, as: name, length: completion.length) else { return false }
            completion.file = name
        }
        return true
    }

    /// Returns why a file was not adopted, after a look at the spool or a line in the log.
    private func fault(_ file: String, of completion: Completion) -> FileFault {
        if spool.mayHaveLost(file) {
            places?.look()
            return .lost
        }
        let metadata: Logger.Metadata = [
            "attempt": "\(completion.attempt)", "bytes": "\(spool.length(of: file).map(String.init) ?? "none")",
            "said": "\(completion.length)",
        ]
        logger.error("a worker's file is missing or differs from its DONE", metadata: metadata)
        return .notAsSaid
    }

    // MARK: Forms

    /// Writes a body into the spool, which is made again first if it was removed.
    ///
    /// - Returns: the file's name; nil if the disk does not take it.
    private func write(_ bytes: [UInt8]) -> String? {
        spool.write(bytes) ?? (spool.isInPlace || places?.look() != true ? nil : spool.write(bytes))
    }

    /// The body of a stored answer, also in the forms that the flight's clients want. A body that cannot be written or
    /// read stays as it is.
    func inWishedForms(_ body: CachedBody, for flight: FlightName) -> CachedBody {
        let wishes = core.wishes(of: flight)
        switch body {
        case .missing, .both: return body
        case .inline(let id):
            guard wishes.file, let bytes = bodies[id], let file = write(bytes) else { return body }
            return .both(id, file: file)
        case .file(let file):
            guard wishes.inlineBytes > 0, let bytes = spool.read(file, limit: wishes.inlineBytes) else {
                return body
            }
            return .both(hold(bytes), file: file)
        }
    }
}
