internal import EarshotCore
internal import EarshotDisk
internal import EarshotDurable
internal import EarshotLoop
internal import Glibc
internal import Logging

/// Connection between the core, which decides about durable requests, and their thread, which stores them.
extension BrokerProcess {
    /// Store of durable requests at the start.
    struct DurableOpening {
        let store: DurableStore
        /// Spool files of stored results, whose paths clients may have received.
        let files: Set<String>
        let hasRows: Bool
    }

    /// Opens the store of durable requests, and waits for the list of its files; nil with a log message if that fails and
    /// the broker refuses durable requests.
    ///
    /// - Throws: `BrokerError` if the folder is not trusted, or if only another version can read the store.
    static func openDurable(_ options: BrokerOptions, _ logger: Logger) throws -> DurableOpening? {
        guard let path = options.durableFolder else { return nil }
        let folder = DurableFolder(path)
        do {
            try folder.prepare()
            let store = try DurableStore(folder, lock: try folder.take(), spool: options.spoolFolder)
            store.finish()
            var opening = DurableOpening(store: store, files: [], hasRows: false)
            for answer in store.answers.takeAll() {
                switch answer {
                case .opened(let files, let hasRows):
                    opening = DurableOpening(store: store, files: files, hasRows: hasRows)
                case .fault(let fault): logger.report(fault.message, fault.details)
                case .foreign(let words): throw BrokerError(words, isPermanent: true)
                case .rows, .stored, .refused, .recorded, .read, .reopened: break
                }
            }
            return opening
        } catch let error as BrokerError {
            throw error
        } catch let error as StoreError where error.kind == .distrusted {
            throw BrokerError("\(error)")
        } catch let error as StoreError where error.kind == .taken {
            logger.notice(
                "another broker stores durable requests here; this one refuses them", metadata: ["error": "\(error)"])
        } catch {
            logger.error("cannot store durable requests; they are refused", metadata: ["error": "\(error)"])
        }
        return nil
    }

    /// Listens to the thread, and begins to load the requests of earlier brokers. The first slice is read after the broker
    /// is ready.
    func restore(_ opening: DurableOpening) throws {
        if opening.hasRows {
            var files: [String: Int] = [:]
            for file in opening.files { files[file] = spool.length(of: file) }
            core.beginDurableLoad(files: files)
        }
        _ = try loop.add(opening.store.answers.descriptor, .readable) { [unowned self] _ in takeDurableAnswers() }
    }

    private func take(_ rows: [DurableRow], now: Tick) {
        let wasLoading = core.isLoadingDurables
        let entries = rows.map { row in
            DurableEntry(
                id: DurableID(rawValue: row.id), acceptedAt: row.acceptedAt, head: row.head,
                principal: row.principal, hasResult: row.hasEnded,
                failure: row.summary.failure, status: row.summary.status, attempts: row.summary.attempts,
                file: row.file.flatMap { spool.length(of: $0) == row.fileBytes ? $0 : nil }, fileBytes: row.fileBytes,
                resultBytes: row.resultBytes)
        }
        core.durableRowsRead(entries, now: now)
        guard wasLoading, !core.isLoadingDurables else { return }
        if core.loadedDurables > 0 {
            logger.notice("loaded durable requests", metadata: ["count": "\(core.loadedDurables)"])
        }
        for user in core.usersWithDurableRows {
            logger.warning(
                "durable requests of a user exceed durable-per-user; the rest is loaded when there is room",
                metadata: ["user": "\(user)"])
        }
    }

    /// Stores the result of a durable request with its body.
    func store(_ result: DurableResult, of id: DurableID) {
        guard let durable else { return }
        var end = DurableEnd(head: result.head, length: result.length, sha256: result.sha256, body: nil)
        var file: Int32?
        if let body = result.body {
            end.body = bodies[body] ?? []
        } else if let name = result.file {
            // One that waits for another reader has no file of its own.
            if let body = bodies.spilled(name) { end.body = body } else { file = spool.open(name) }
        }
        durable.submit(.record(id: id.rawValue, end, file: file))
    }

    private func takeDurableAnswers() {
        guard let durable else { return }
        let now = Tick(nanoseconds: loop.now.nanoseconds)
        core.calendarSeconds = Int64(time(nil))
        for answer in durable.answers.takeAll() {
            switch answer {
            case .opened, .foreign: break
            case .rows(let rows): take(rows, now: now)
            case .stored(let id): core.durableStored(DurableID(rawValue: id), now: now)
            case .refused(let id, let isFull):
                core.durableRefused(DurableID(rawValue: id), isFull: isFull, now: now)
            case .recorded(let id, let isStored):
                core.durableRecorded(DurableID(rawValue: id), isStored: isStored, now: now)
            case .read(let id, let reading):
                core.durableRead(DurableID(rawValue: id), reading.flatMap(content), now: now)
            case .reopened(let id, let head): core.durableReopened(DurableID(rawValue: id), head, now: now)
            case .fault(let fault): logger.report(fault.message, fault.details)
            }
        }
    }

    /// Returns stored content with its body in a form that the core can deliver; nil if that fails.
    private func content(_ reading: DurableReading) -> DurableContent? {
        switch reading.body {
        case .none: return DurableContent(head: reading.head, body: .missing)
        case .bytes(let bytes):
            guard !bytes.isEmpty else { return nil }
            return DurableContent(head: reading.head, body: .inline(bodies.insert(bytes)))
        case .file(let part, let sha256, let length):
            guard spool.adopt(part, as: sha256, length: length, isLinked: true) else {
                spool.remove(part)
                return nil
            }
            return DurableContent(head: reading.head, body: .file(sha256))
        }
    }
}
