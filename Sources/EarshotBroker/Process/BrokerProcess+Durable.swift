internal import EarshotCore
internal import EarshotDisk
internal import EarshotDurable
internal import EarshotLoop
internal import Glibc
internal import Logging

/// Connection between the core, which decides about durable requests, and their thread, which stores them.
extension BrokerProcess {
    /// Store of durable requests at the start.
    struct OpenedDurableStore {
        let store: DurableStore
        /// Spool files of stored results, whose paths clients may have received.
        let resultFiles: Set<String>
        let hasStoredRequests: Bool
    }

    /// Opens the store of durable requests, and waits for the list of its files; nil with a log message if that fails
    /// and the broker refuses durable requests.
    ///
    /// - Throws: `BrokerError` if the folder is not trusted, or if only another version can read the store.
    static func openDurableStore(options: BrokerOptions, logger: Logger) throws -> OpenedDurableStore? {
        guard let path = options.durableFolder else { return nil }
        let folder = DurableFolder(path)
        do {
            try folder.prepareFolders()
            let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: options.spoolFolder)
            store.finish()
            var opening = OpenedDurableStore(store: store, resultFiles: [], hasStoredRequests: false)
            for answer in store.answers.takeAll() {
                switch answer {
                case .tableOpened(let files, let hasRows):
                    opening = OpenedDurableStore(store: store, resultFiles: files, hasStoredRequests: hasRows)
                case .fault(let fault): logger.logFault(fault.message, details: fault.details)
                case .tableIncompatible(let words): throw BrokerError(words, isPermanent: true)
                case .rows, .stored, .refused, .resultRecorded, .resultRead, .reopened: break
                }
            }
            return opening
        } catch let error as BrokerError {
            throw error
        } catch let error as StoreError where error.kind == .writableByOthers {
            throw BrokerError("\(error)")
        } catch let error as StoreError where error.kind == .lockHeld {
            logger.notice(
                "another broker stores durable requests here; this one refuses them", metadata: ["error": "\(error)"])
        } catch {
            logger.error("cannot store durable requests; they are refused", metadata: ["error": "\(error)"])
        }
        return nil
    }

    /// Listens to the thread, and begins to load the requests of earlier brokers. The first slice is read after the
    /// broker is ready.
    func beginRestoring(_ opening: OpenedDurableStore) throws {
        if opening.hasStoredRequests {
            var files: [String: Int] = [:]
            for file in opening.resultFiles { files[file] = spool.length(of: file) }
            core.beginDurableLoad(files: files)
        }
        _ = try loop.add(opening.store.answers.descriptor, .readable) { [unowned self] _ in processDurableAnswers() }
    }

    private func restoreRows(_ rows: [DurableRow], now: MonotonicTime) {
        let wasLoading = core.isLoadingDurables
        let entries = rows.map { row in
            DurableEntry(
                id: DurableID(rawValue: row.id), acceptedAt: row.acceptedAt, head: row.fetchHead,
                principal: row.principal, hasResult: row.hasEnded, failure: row.resultSummary.failure,
                status: row.resultSummary.status, attempts: row.resultSummary.attempts,
                file: row.bodyFile.flatMap { spool.length(of: $0) == row.bodyFileBytes ? $0 : nil },
                fileBytes: row.bodyFileBytes, resultBytes: row.resultBytes)
        }
        core.durableRowsRead(entries, now: now)
        guard wasLoading, !core.isLoadingDurables else { return }
        if core.loadedDurableCount > 0 {
            logger.notice("loaded durable requests", metadata: ["count": "\(core.loadedDurableCount)"])
        }
        for user in core.usersWithDurableRows {
            logger.warning(
                "durable requests of a user exceed durable-per-user; the rest is loaded when there is room",
                metadata: ["user": "\(user)"])
        }
    }

    /// Stores the result of a durable request with its body.
    func storeDurableResult(_ result: DurableResult, of id: DurableID) {
        guard let durableStore else { return }
        var end = DurableEnd(
            terminalHead: result.terminalHead, bodyLength: result.bodyLength, sha256: result.sha256, body: nil)
        var file: Int32?
        if let body = result.body {
            end.body = bodies[body] ?? []
        } else if let name = result.file {
            // One that waits for another reader has no file of its own.
            if let body = bodies.readSpilledBody(named: name) { end.body = body } else { file = spool.open(name) }
        }
        durableStore.submit(.storeResult(id: id.rawValue, end, file: file))
    }

    private func processDurableAnswers() {
        guard let durableStore else { return }
        let now = MonotonicTime(nanoseconds: loop.now.nanoseconds)
        core.unixTimeSeconds = Int64(time(nil))
        for answer in durableStore.answers.takeAll() {
            switch answer {
            case .tableOpened, .tableIncompatible: break
            case .rows(let rows): restoreRows(rows, now: now)
            case .stored(let id): core.durableRequestStored(DurableID(rawValue: id), now: now)
            case .refused(let id, let isFull):
                core.durableRequestStoreFailed(DurableID(rawValue: id), isFull: isFull, now: now)
            case .resultRecorded(let id, let isStored):
                core.durableOutcomeWritten(DurableID(rawValue: id), isStored: isStored, now: now)
            case .resultRead(let id, let reading):
                core.durableResultRead(DurableID(rawValue: id), reading.flatMap(durableContent), now: now)
            case .reopened(let id, let head): core.durableRequestReopened(DurableID(rawValue: id), head, now: now)
            case .fault(let fault): logger.logFault(fault.message, details: fault.details)
            }
        }
    }

    /// Returns stored content with its body in a form that the core can deliver; nil if that fails.
    private func durableContent(_ reading: DurableStoredResult) -> DurableOutcome? {
        switch reading.body {
        case .noBody: return DurableOutcome(head: reading.terminalHead, body: .missing)
        case .bytes(let bytes):
            guard !bytes.isEmpty else { return nil }
            return DurableOutcome(head: reading.terminalHead, body: .inline(bodies.insert(bytes)))
        case .spoolFile(let part, let sha256, let length):
            guard spool.adopt(part, as: sha256, length: length, isLinked: true) else {
                spool.remove(part)
                return nil
            }
            return DurableOutcome(head: reading.terminalHead, body: .file(sha256))
        }
    }
}
