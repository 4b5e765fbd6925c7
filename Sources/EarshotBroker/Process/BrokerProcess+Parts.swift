internal import EarshotCore
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// Partial bodies that outlive their flights and this broker.
extension BrokerProcess {
    /// Opens the folder of parts. If that fails the broker keeps no parts, and the log has the reason.
    static func openPartFolder(options: BrokerOptions, logger: Logger) -> BodyParts? {
        guard let path = options.partsFolder else { return nil }
        do {
            let parts = try BodyParts(path, spool: options.spoolFolder)
            try PrivateFolder.makeOrCheckStore(options.spoolFolder)
            if parts.sharesFileSystem(withSpool: options.spoolFolder) { return parts }
            logger.notice(
                "files of the spool cannot be renamed to the folder of partial bodies; they end with this broker",
                metadata: ["path": "\(path)", "spool": "\(options.spoolFolder)"])
        } catch {
            logger.error(
                "cannot open the folder of partial bodies; they end with this broker", metadata: ["error": "\(error)"])
        }
        return nil
    }

    /// Reports the totals that the thread counts to the core.
    func watchPartTotals(_ parts: BodyParts) throws {
        _ = try loop.add(parts.totalsDescriptor, .readable) { [unowned self] _ in
            parts.takeTotals()
            core.storedParts = (parts.folderTotals.partCount, parts.folderTotals.bodyBytes)
        }
        applyPartBounds()
    }

    /// Applies the settings, and notices parts of other brokers.
    func applyPartBounds() {
        guard let parts else { return }
        if parts.isFolderRemoved { recreatePartFolder(parts) }
        let hasChanged = parts.enforceBounds(
            maximumBytes: core.settings[.partsSize] ?? 0, maximumAgeSeconds: (core.settings[.partsDays] ?? 0) * 86_400)
        // Not by the thread's totals, which come a second after the start: meanwhile each start of a transfer would
        // search an empty folder, at a third of its cost in the broker.
        if hasChanged { core.hasStoredParts = parts.hasParts }
    }

    /// Creates the folder again after somebody removed it, and logs the first failure.
    private func recreatePartFolder(_ parts: BodyParts) {
        let wasLost = parts.isFolderLost
        do throws(StoreError) {
            try parts.recreateFolder()
            logger.warning("the folder of partial bodies was removed, and is created again")
        } catch {
            guard !wasLost else { return }
            logger.error(
                "the folder of partial bodies was removed and cannot be created again; they end with this broker",
                metadata: ["error": "\(error)"])
        }
    }

    /// Returns the JOB with the part that its attempt resumes, if there is one.
    func addingResumedPart(to job: Job, _ keys: PartKeys, by worker: WorkerID) -> Job {
        let file = SpoolName.partFile(of: job.attempt, pid: workerPort.pid(of: worker.rawValue))
        guard let assigned = parts?.assignPart(matching: keys, maximumBytes: job.maximumBodyBytes, toFile: file) else {
            return job
        }
        core.storedPartFound(
            assigned.head.part, bytes: assigned.usableBytes, isVerified: assigned.sha256 == nil, for: job.attempt,
            by: worker)
        let part = assigned.head.part
        var job = job
        job.resume = Job.Resume(
            availableBytes: assigned.usableBytes, totalBytes: part.totalBytes, validator: part.validator,
            sha256: assigned.sha256)
        return job
    }

    /// Removes the files of ended workers, except parts.
    func removeFilesOfEndedWorkers() {
        parts?.recoverPartsFromSpools()
        spool.removeFilesOfEndedProcesses { core.isAttemptRunning($0) }
    }
}
