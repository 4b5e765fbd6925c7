internal import EarshotHTTP
public import EarshotWire
internal import OrderedCollections

/// Durable requests of earlier brokers, which a new broker loads from the table in slices while it serves.
///
/// Messages that name, list or remove requests wait until all rows are loaded, and are then carried out as if the rows
/// had been there from the start. All others are carried out at once.
extension BrokerCore {
    // MARK: Events

    /// Begins to load the requests of earlier brokers. The shell calls it before the first client connects.
    ///
    /// - Parameter files: spool files of their results with their lengths: clients may have received the paths.
    public mutating func beginDurableLoad(files: [String: Int] = [:]) {
        for (file, bytes) in files { records.outcomes.retainFile(file, bytes: bytes, isShared: true) }
        records.durables.loadState.heldSpoolFiles = Array(files.keys)
        Durable.beginScan(.allRows, after: nil, in: &records)
    }

    /// Handles the next slice of rows; an empty one after the last row.
    public mutating func durableRowsRead(_ entries: [DurableEntry], now: MonotonicTime) {
        records.latestEventTime = now
        guard records.durables.loadState.scan != nil else { return }
        for entry in entries { processDurableRow(entry, now: now) }
        if let last = entries.last?.id, let scan = records.durables.loadState.scan {
            records.outbox.actions.append(.durable(.readRows(after: last, of: scan.principal)))
        } else {
            Durable.endScan(in: &records)
        }
    }

    /// Whether the rows of earlier brokers are being loaded.
    public var isLoadingDurables: Bool { records.durables.loadState.isLoadingAll }

    /// Number of loaded requests of earlier brokers.
    public var loadedDurableCount: Int { records.durables.loadState.loadedRowCount }

    /// Whether the table may contain rows that are not loaded.
    public var hasDurableRows: Bool { records.durables.loadState.hasRows }

    /// Users with requests that their quota leaves in the table.
    public var usersWithDurableRows: [PrincipalName] { Array(records.durables.loadState.unloadedRowsByUser.keys) }

    /// Whether a message of a client waits for rows of durable requests.
    public func awaitsDurableRows(_ id: ClientID) -> Bool {
        !records.durables.loadState.waitingMessages.isEmpty
            && records.clients.handle(of: id).map { records.durables.loadState.waitingMessages[$0] != nil } == true
    }

    // MARK: Messages

    /// Carries out waiting messages, and begins the next scan. Called once per pass.
    mutating func continueDurableLoad(now: MonotonicTime) {
        guard records.durables.loadState.scan == nil, !records.durables.loadState.isEmpty else { return }
        for _ in 0..<max(records.limits.maximumResumedMessagesPerPass, 1) {
            guard let (client, waiting) = records.durables.loadState.waitingMessages.elements.first else { break }
            if waiting.deletedRowCount == nil,
                let name = Durable.userWhoseRowsAreRemoved(by: waiting.message, of: client, in: &records),
                let removal = DurableLoad.Removal(waiting.message),
                let leftover = records.durables.loadState.unloadedRowsByUser[name]
            {
                let scan = DurableLoad.RemovalScan(
                    principal: name, removal: removal, client: records.clients.reference(to: client))
                Durable.beginScan(.rowsToRemove(scan), after: leftover.lastLoadedID, in: &records)
                return
            }
            records.durables.loadState.waitingMessages.removeFirst()
            executeMessage(
                waiting.message, waiting.body, by: client, removedRows: waiting.deletedRowCount ?? 0, now: now)
            releaseUnusedBody(waiting.body)
        }
        guard !records.isDraining,
            let (name, leftover) = records.durables.loadState.unloadedRowsByUser.elements.first(where: {
                Durable.mayLoadRow($0.value, of: $0.key, in: &records)
            })
        else { return }
        Durable.beginScan(.unloadedRows(name), after: leftover.lastLoadedID, in: &records)
    }

    // MARK: Scans

    private mutating func processDurableRow(_ entry: DurableEntry, now: MonotonicTime) {
        let user = entry.principal.flatMap { PrincipalName($0) }
        switch records.durables.loadState.scan {
        case .allRows?:
            // A new request gets a higher ID than a row that stays in the table, too.
            let isPossible = records.durables.reserveStoredID(entry.id)
            guard let user, isPossible else { return loadDurableRow(entry, now: now) }
            guard records.durables.loadState.unloadedRowsByUser[user] == nil else { return }
            guard Durable.quotaAdmitsRow(bytes: entry.quotaBytes, of: user, in: &records) else {
                let before = DurableID(rawValue: entry.id.rawValue &- 1)
                records.durables.loadState.unloadedRowsByUser[user] = DurableLoad.UnloadedRows(
                    lastLoadedID: before, firstRowBytes: entry.quotaBytes)
                return
            }
            loadDurableRow(entry, now: now)
        case .unloadedRows(let name)?:
            guard Durable.quotaAdmitsRow(bytes: entry.quotaBytes, of: name, in: &records) else {
                records.durables.loadState.unloadedRowsByUser[name]?.firstRowBytes = entry.quotaBytes
                records.durables.loadState.scan = nil
                return
            }
            records.durables.loadState.unloadedRowsByUser[name]?.lastLoadedID = entry.id
            loadDurableRow(entry, now: now)
        case .rowsToRemove(var scan)?:
            if case .fetch(let fetch)? = try? ClientMessage(head: entry.head), scan.removal.includesRequest(of: fetch) {
                scan.deletedRowCount += 1
                records.outbox.actions.append(.durable(.deleteRequest(entry.id)))
            } else {
                scan.hasRemainingRows = true
            }
            records.durables.loadState.scan = .rowsToRemove(scan)
        case nil: break
        }
    }

    // MARK: Rows

    /// Loads a request. Deletes a row that is not a valid request, or whose ID another durable request has.
    private mutating func loadDurableRow(_ entry: DurableEntry, now: MonotonicTime) {
        // Data on disk may be damaged in ways that SQLite does not detect. A damaged name must not become the
        // administrator's.
        let principal = entry.principal.map { PrincipalName($0) }
        guard records.durables.reserveStoredID(entry.id),
            case .fetch(let fetch)? = try? ClientMessage(head: entry.head),
            fetch.options.isDurable, principal != .some(nil)
        else {
            records.outbox.actions.append(.durable(.deleteRequest(entry.id)))
            return
        }
        let key = HandlerKey(Principals.addPrincipal(principal ?? nil, in: &records), fetch.handler)
        guard reclaimRequestID(fetch, key) else {
            records.outbox.actions.append(.durable(.deleteRequest(entry.id)))
            return
        }
        let age = records.calendarSeconds - min(max(entry.acceptedAt, 0), records.calendarSeconds)
        let acceptedAt = now.advanced(byMilliseconds: -Int(clamping: age) * 1_000)
        let handler = Clients.findOrCreateHandler(for: key, in: &records)
        let interest = Flights.insertRequest(
            fetch, Fingerprint(of: fetch, body: nil).hash64, handler, nil,
            RequestBook.requestIDHash(fetch.request, of: handler), now: acceptedAt, in: &records)
        let result = DurableSummary(
            failure: entry.failure.map { FailureCode(rawValue: $0) ?? .internalError }, status: entry.status,
            attempts: entry.attempts, url: fetch.url)
        records.durables.restoreRecord(
            entry.id, interest, acceptedAt: acceptedAt, result: entry.hasResult ? result : nil,
            file: entry.hasResult ? entry.file : nil)
        records.durables.loadState.loadedRowCount += 1
        records.chargeDurableBytes(
            interest, request: entry.head.count + DurableRecord.rowOverheadBytes,
            result: entry.hasResult ? entry.resultBytes : 0)
        Durable.setExpiry(of: interest, in: &records)
        guard entry.hasResult else {
            beginStoredRequest(interest, fetch, of: RequestHeads.noClientID, now: now)
            return
        }
        if let file = entry.file { records.outcomes.retainFile(file, bytes: entry.fileBytes, isShared: true) }
        keepOutcomeOnDisk(of: interest)
    }

    /// Removes the request that took the ID of a row while the row was not loaded.
    ///
    /// - Returns: false if a durable request has the ID.
    private mutating func reclaimRequestID(_ fetch: Fetch, _ key: HandlerKey) -> Bool {
        removeDoomedRequest(fetch.request, key)
        guard let handler = records.handlers.handle(of: key),
            let interest = records.interestHoldingID(fetch.request, of: handler)
        else { return true }
        guard !records.isDurable(interest) else { return false }
        guard records.requests[interest].phase != .delivering else {
            freeRequestID(of: interest)
            freeRequestIfOnlyFailuresDue(interest)
            return true
        }
        removeRequest(interest)
        return true
    }
}
