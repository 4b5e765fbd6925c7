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
        for (file, bytes) in files { records.outcomes.hold(file: file, bytes: bytes, isShared: true) }
        records.durables.load.files = Array(files.keys)
        Durable.begin(.all, after: nil, in: &records)
    }

    /// Takes the next slice of rows; an empty one after the last.
    public mutating func durableRowsRead(_ entries: [DurableEntry], now: Tick) {
        records.clock = now
        guard records.durables.load.scan != nil else { return }
        for entry in entries { take(entry, now: now) }
        if let last = entries.last?.id, let scan = records.durables.load.scan {
            records.outbox.actions.append(.durable(.readRows(after: last, of: scan.principal)))
        } else {
            Durable.endScan(in: &records)
        }
    }

    /// Whether the rows of earlier brokers are being loaded.
    public var isLoadingDurables: Bool { records.durables.load.isLoadingAll }

    /// Number of requests of earlier brokers that were loaded.
    public var loadedDurables: Int { records.durables.load.count }

    /// Whether rows may be in the table that are not loaded.
    public var hasDurableRows: Bool { records.durables.load.hasRows }

    /// Users with requests that their quota leaves in the table.
    public var usersWithDurableRows: [PrincipalName] { Array(records.durables.load.leftovers.keys) }

    /// Whether a message of a client waits for rows of durable requests.
    public func awaitsDurableRows(_ id: ClientID) -> Bool {
        !records.durables.load.messages.isEmpty
            && records.clients.handle(of: id).map { records.durables.load.messages[$0] != nil } == true
    }

    // MARK: Messages

    /// Carries out waiting messages, and begins the next scan. Called once per pass.
    mutating func continueDurableLoad(now: Tick) {
        guard records.durables.load.scan == nil, !records.durables.load.isEmpty else { return }
        for _ in 0..<max(records.limits.waitingMessagesPerPass, 1) {
            guard let (client, waiting) = records.durables.load.messages.elements.first else { break }
            if waiting.removedRows == nil, let name = Durable.removesRows(waiting.message, of: client, in: &records),
                let removal = DurableLoad.Removal(waiting.message), let leftover = records.durables.load.leftovers[name]
            {
                let scan = DurableLoad.RemovalScan(
                    principal: name, removal: removal, client: records.clients.reference(to: client))
                Durable.begin(.removal(scan), after: leftover.lastLoadedID, in: &records)
                return
            }
            records.durables.load.messages.removeFirst()
            carryOut(waiting.message, waiting.body, by: client, removedRows: waiting.removedRows ?? 0, now: now)
            releaseUnused(waiting.body)
        }
        guard !records.isDraining,
            let (name, leftover) = records.durables.load.leftovers.elements.first(where: {
                Durable.mayLoad($0.value, of: $0.key, in: &records)
            })
        else { return }
        Durable.begin(.leftover(name), after: leftover.lastLoadedID, in: &records)
    }

    // MARK: Scans

    private mutating func take(_ entry: DurableEntry, now: Tick) {
        let user = entry.principal.flatMap { PrincipalName($0) }
        switch records.durables.load.scan {
        case .all?:
            // A new request gets a higher ID than a row that stays in the table, too.
            let isPossible = records.durables.rowFound(entry.id)
            guard let user, isPossible else { return load(entry, now: now) }
            guard records.durables.load.leftovers[user] == nil else { return }
            guard Durable.admits(entry.bytes, of: user, in: &records) else {
                let before = DurableID(rawValue: entry.id.rawValue &- 1)
                records.durables.load.leftovers[user] = DurableLoad.Leftover(lastLoadedID: before, bytes: entry.bytes)
                return
            }
            load(entry, now: now)
        case .leftover(let name)?:
            guard Durable.admits(entry.bytes, of: name, in: &records) else {
                records.durables.load.leftovers[name]?.bytes = entry.bytes
                records.durables.load.scan = nil
                return
            }
            records.durables.load.leftovers[name]?.lastLoadedID = entry.id
            load(entry, now: now)
        case .removal(var scan)?:
            if case .fetch(let fetch)? = try? ClientMessage(head: entry.head), scan.removal.includes(fetch) {
                scan.count += 1
                records.outbox.actions.append(.durable(.forget(entry.id)))
            } else {
                scan.leavesRows = true
            }
            records.durables.load.scan = .removal(scan)
        case nil: break
        }
    }

    // MARK: Rows

    /// Loads a request. Deletes a row that is none, or whose ID another durable request has.
    private mutating func load(_ entry: DurableEntry, now: Tick) {
        // Data on disk may be damaged in ways that SQLite does not detect. A damaged name must not become the
        // administrator's.
        let principal = entry.principal.map { PrincipalName($0) }
        guard records.durables.rowFound(entry.id), case .fetch(let fetch)? = try? ClientMessage(head: entry.head),
            fetch.options.isDurable, principal != .some(nil)
        else {
            records.outbox.actions.append(.durable(.forget(entry.id)))
            return
        }
        let key = HandlerKey(Principals.add(principal ?? nil, in: &records), fetch.handler)
        guard freeID(fetch, key) else {
            records.outbox.actions.append(.durable(.forget(entry.id)))
            return
        }
        let age = records.calendarSeconds - min(max(entry.acceptedAt, 0), records.calendarSeconds)
        let acceptedAt = now.advanced(byMilliseconds: -Int(clamping: age) * 1_000)
        let handler = Clients.handler(of: key, in: &records)
        let interest = Flights.list(
            fetch, Fingerprint(of: fetch, body: nil).value, handler, nil, RequestBook.hash(fetch.request, of: handler),
            now: acceptedAt, in: &records)
        let result = DurableSummary(
            failure: entry.failure.map { FailureCode(rawValue: $0) ?? .internalError }, status: entry.status,
            attempts: entry.attempts, url: fetch.url)
        records.durables.restore(
            entry.id, interest, acceptedAt: acceptedAt, result: entry.hasResult ? result : nil,
            file: entry.hasResult ? entry.file : nil)
        records.durables.load.count += 1
        records.chargeDurable(
            interest, request: entry.head.count + DurableRecord.rowBytes,
            result: entry.hasResult ? entry.resultBytes : 0)
        Durable.setExpiry(of: interest, in: &records)
        guard entry.hasResult else {
            begin(interest, fetch, of: RequestHeads.noClient, now: now)
            return
        }
        if let file = entry.file { records.outcomes.hold(file: file, bytes: entry.fileBytes, isShared: true) }
        leaveOnDisk(interest)
    }

    /// Takes the ID of a row from a request that came while the row was not loaded, which is removed.
    ///
    /// - Returns: false if a durable request has the ID.
    private mutating func freeID(_ fetch: Fetch, _ key: HandlerKey) -> Bool {
        removeDoomed(fetch.request, key)
        guard let interest = records.handlers.handle(of: key).flatMap({ records.listedInterest(fetch.request, of: $0) })
        else {
            return true
        }
        guard !records.isDurable(interest) else { return false }
        guard records.requests[interest].phase != .delivering else {
            freeID(interest)
            freeIfCompact(interest)
            return true
        }
        removeRequest(interest)
        return true
    }
}
