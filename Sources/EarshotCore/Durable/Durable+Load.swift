internal import EarshotWire
internal import OrderedCollections

/// Rows of earlier brokers: the scans of their table, and the messages that wait for them.
extension Durable {
    /// Whether a message must wait for rows, if some are in the table.
    static func mustAwaitRows(
        _ message: ClientMessage, from client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        if records.durables.load.isLoadingAll { return DurableLoad.needsRows(message) }
        return removesRows(message, of: client, in: &records) != nil
    }

    /// The user whose rows in the table a message may remove; nil if it removes none.
    static func removesRows(
        _ message: ClientMessage, of client: Handle<ClientSession>, in records: inout Records
    ) -> PrincipalName? {
        guard let name = records.principals.name(of: records.clients[client].principal),
            records.durables.load.leftovers[name] != nil,
            DurableLoad.Removal(message) != nil
        else { return nil }
        return name
    }

    /// Begins to read the rows after one, which is nil for the first.
    static func begin(_ scan: DurableLoad.Scan, after id: DurableID?, in records: inout Records) {
        records.durables.load.scan = scan
        records.outbox.actions.append(.durable(.readRows(after: id, of: scan.principal)))
    }

    /// Handles the end of the table.
    static func endScan(in records: inout Records) {
        switch records.durables.load.scan {
        case .all?, nil: break
        case .leftover(let name)?: records.durables.load.leftovers[name] = nil
        case .removal(let scan)?:
            if !scan.leavesRows { records.durables.load.leftovers[scan.principal] = nil }
            if let client = records.clients.resolve(scan.client) {
                records.durables.load.messages[client]?.removedRows = scan.count
            }
        }
        records.durables.load.scan = nil
        guard records.durables.load.leftovers.isEmpty else { return }
        for file in records.durables.load.files { records.releaseFile(file) }
        records.durables.load.files = []
    }

    /// Whether the quota of a user admits another row of this size.
    static func admits(_ bytes: Int, of user: PrincipalName, in records: inout Records) -> Bool {
        records.principals.handle(of: user).map { records.quotas.admitsDurableRow(bytes, of: $0) } ?? true
    }

    /// Whether to read rows that a quota left over: the first has room, and half of the quota is free, so that not each
    /// end of a request reads the table.
    static func mayLoad(
        _ leftover: DurableLoad.Leftover, of user: PrincipalName, in records: inout Records
    ) -> Bool {
        guard let principal = records.principals.handle(of: user) else { return true }
        let most = records.quotas.limits.durableBytes
        return records.quotas.admitsDurableRow(leftover.bytes, of: principal)
            && (most == 0 || records.quotas.use(by: principal).durableBytes <= most / 2)
    }
}
