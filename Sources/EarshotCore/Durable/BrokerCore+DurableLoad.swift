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
        for (file, bytes) in files { outcomes.hold(file: file, bytes: bytes, isShared: true) }
        durables.load.files = Array(files.keys)
        begin(.all, after: nil)
    }

    /// Takes the next slice of rows; an empty one after the last.
    public mutating func durableRowsRead(_ entries: [DurableEntry], now: Tick) {
        clock = now
        guard durables.load.scan != nil else { return }
        for entry in entries { take(entry, now: now) }
        if let last = entries.last?.id, let scan = durables.load.scan {
            actions.append(.durable(.readRows(after: last, of: scan.principal)))
        } else {
            endScan()
        }
    }

    /// Whether the rows of earlier brokers are being loaded.
    public var isLoadingDurables: Bool { durables.load.isLoadingAll }

    /// Number of requests of earlier brokers that were loaded.
    public var loadedDurables: Int { durables.load.count }

    /// Whether rows may be in the table that are not loaded.
    public var hasDurableRows: Bool { durables.load.hasRows }

    /// Users with requests that their quota leaves in the table.
    public var usersWithDurableRows: [PrincipalName] { Array(durables.load.leftovers.keys) }

    /// Whether a message of a client waits for rows of durable requests.
    public func awaitsDurableRows(_ id: ClientID) -> Bool {
        !durables.load.messages.isEmpty
            && clients.number(of: id).map { durables.load.messages[$0] != nil } == true
    }

    // MARK: Messages

    /// Whether a message must wait for rows, if some are in the table.
    func mustAwaitRows(_ message: ClientMessage, from client: Handle<ClientSession>) -> Bool {
        if durables.load.isLoadingAll { return DurableLoad.needsRows(message) }
        return removesRows(message, of: client) != nil
    }

    /// The user whose rows in the table a message may remove; nil if it removes none.
    private func removesRows(_ message: ClientMessage, of client: Handle<ClientSession>) -> PrincipalName? {
        guard let name = principals.name(of: clients[client].principal), durables.load.leftovers[name] != nil,
            DurableLoad.Removal(message) != nil
        else { return nil }
        return name
    }

    /// Carries out waiting messages, and begins the next scan. Called once per pass.
    mutating func continueDurableLoad(now: Tick) {
        guard durables.load.scan == nil, !durables.load.isEmpty else { return }
        for _ in 0..<max(limits.waitingMessagesPerPass, 1) {
            guard let (client, waiting) = durables.load.messages.elements.first else { break }
            if waiting.removedRows == nil, let name = removesRows(waiting.message, of: client),
                let removal = DurableLoad.Removal(waiting.message), let leftover = durables.load.leftovers[name]
            {
                let scan = DurableLoad.RemovalScan(
                    principal: name, removal: removal, client: clients.reference(to: client))
                begin(.removal(scan), after: leftover.after)
                return
            }
            durables.load.messages.removeFirst()
            carryOut(waiting.message, waiting.body, by: client, removedRows: waiting.removedRows ?? 0, now: now)
            releaseUnused(waiting.body)
        }
        guard !isDraining,
            let (name, leftover) = durables.load.leftovers.elements.first(where: { mayLoad($0.value, of: $0.key) })
        else { return }
        begin(.leftover(name), after: leftover.after)
    }

    // MARK: Scans

    private mutating func begin(_ scan: DurableLoad.Scan, after id: DurableID?) {
        durables.load.scan = scan
        actions.append(.durable(.readRows(after: id, of: scan.principal)))
    }

    private mutating func endScan() {
        switch durables.load.scan {
        case .all?, nil: break
        case .leftover(let name)?: durables.load.leftovers[name] = nil
        case .removal(let scan)?:
            if !scan.leavesRows { durables.load.leftovers[scan.principal] = nil }
            if let client = clients.resolve(scan.client) { durables.load.messages[client]?.removedRows = scan.count }
        }
        durables.load.scan = nil
        guard durables.load.leftovers.isEmpty else { return }
        for file in durables.load.files { releaseFile(file) }
        durables.load.files = []
    }

    private mutating func take(_ entry: DurableEntry, now: Tick) {
        let user = entry.principal.flatMap { PrincipalName($0) }
        switch durables.load.scan {
        case .all?:
            // A new request gets a higher ID than a row that stays in the table, too.
            let isPossible = durables.found(entry.id)
            guard let user, isPossible else { return load(entry, now: now) }
            guard durables.load.leftovers[user] == nil else { return }
            guard admits(entry.bytes, of: user) else {
                let before = DurableID(rawValue: entry.id.rawValue &- 1)
                durables.load.leftovers[user] = DurableLoad.Leftover(after: before, bytes: entry.bytes)
                return
            }
            load(entry, now: now)
        case .leftover(let name)?:
            guard admits(entry.bytes, of: name) else {
                durables.load.leftovers[name]?.bytes = entry.bytes
                durables.load.scan = nil
                return
            }
            durables.load.leftovers[name]?.after = entry.id
            load(entry, now: now)
        case .removal(var scan)?:
            if case .fetch(let fetch)? = try? ClientMessage(head: entry.head), scan.removal.includes(fetch) {
                scan.count += 1
                actions.append(.durable(.forget(entry.id)))
            } else {
                scan.leavesRows = true
            }
            durables.load.scan = .removal(scan)
        case nil: break
        }
    }

    /// Whether the quota of a user admits another row of this size.
    private func admits(_ bytes: Int, of user: PrincipalName) -> Bool {
        principals.number(of: user).map { quotas.admitsDurableRow(bytes, of: $0) } ?? true
    }

    /// Whether to read rows that a quota left over: the first has room, and half of the quota is free, so that not each
    /// end of a request reads the table.
    private func mayLoad(_ leftover: DurableLoad.Leftover, of user: PrincipalName) -> Bool {
        guard let principal = principals.number(of: user) else { return true }
        let most = quotas.limits.durableBytes
        return quotas.admitsDurableRow(leftover.bytes, of: principal)
            && (most == 0 || quotas.use(by: principal).durableBytes <= most / 2)
    }

    // MARK: Rows

    /// Loads a request. Deletes a row that is none, or whose ID another durable request has.
    private mutating func load(_ entry: DurableEntry, now: Tick) {
        // Data on disk may be damaged in ways that SQLite does not detect. A damaged name must not become the
        // administrator's.
        let principal = entry.principal.map { PrincipalName($0) }
        guard durables.found(entry.id), case .fetch(let fetch)? = try? ClientMessage(head: entry.head),
            fetch.options.isDurable, principal != .some(nil)
        else {
            actions.append(.durable(.forget(entry.id)))
            return
        }
        let key = HandlerKey(principalNumber(principal ?? nil), fetch.handler)
        guard freeID(fetch, key) else {
            actions.append(.durable(.forget(entry.id)))
            return
        }
        let age = calendarSeconds - min(max(entry.acceptedAt, 0), calendarSeconds)
        let acceptedAt = now.advanced(byMilliseconds: -Int(clamping: age) * 1_000)
        let handler = handlerNumber(key)
        let interest = list(
            fetch, Fingerprint(of: fetch, body: nil).value, handler, nil, hash(fetch.request, of: handler),
            now: acceptedAt)
        let result = DurableSummary(
            failure: entry.failure.map { FailureCode(rawValue: $0) ?? .internalError }, status: entry.status,
            attempts: entry.attempts, url: fetch.url)
        durables.restore(
            entry.id, interest, acceptedAt: acceptedAt, result: entry.hasResult ? result : nil,
            file: entry.hasResult ? entry.file : nil)
        durables.load.count += 1
        chargeDurable(
            interest, request: entry.head.count + Self.durableRowBytes, result: entry.hasResult ? entry.resultBytes : 0)
        setExpiry(of: interest)
        guard entry.hasResult else {
            begin(interest, fetch, of: RequestHeads.nobody, now: now)
            return
        }
        if let file = entry.file { outcomes.hold(file: file, bytes: entry.fileBytes, isShared: true) }
        rest(interest)
    }

    /// Takes the ID of a row from a request that came while the row was not loaded, which is removed.
    ///
    /// - Returns: false if a durable request has the ID.
    private mutating func freeID(_ fetch: Fetch, _ key: HandlerKey) -> Bool {
        removeDoomed(fetch.request, key)
        guard let interest = handlers.number(of: key).flatMap({ listedInterest(fetch.request, of: $0) }) else {
            return true
        }
        guard !isDurable(interest) else { return false }
        guard interests[interest].phase != .delivering else {
            unlist(interest)
            freeIfOwed(interest)
            return true
        }
        removeRequest(interest)
        return true
    }
}
