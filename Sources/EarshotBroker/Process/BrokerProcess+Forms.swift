internal import EarshotCore
internal import EarshotWire

/// Conversion of bodies into the forms that subscribers requested, before the core receives them.
extension BrokerProcess {
    /// Returns a completion and its body, additionally as a file or in memory if a subscriber requested that form. A
    /// body that cannot be written or read keeps its form.
    func inWishedForms(
        _ message: WorkerMessage, _ body: [UInt8]?, of peer: UInt64
    ) -> (WorkerMessage, [UInt8]?) {
        guard case .done(var completion) = message else { return (message, body) }
        let wishes = core.lend { $0.wishes(of: completion.attempt, by: WorkerID(rawValue: peer)) }
        if wishes.file, completion.file == nil, let bytes = body, !bytes.isEmpty {
            completion.file = write(bytes)
            return (.done(completion), body)
        }
        guard body == nil, let file = completion.file, completion.length <= wishes.inlineBytes else {
            return (message, body)
        }
        return (message, spool.read(file, limit: wishes.inlineBytes))
    }

    /// Writes a file to the spool. If the spool was removed, it is created again first.
    private func write(_ bytes: [UInt8]) -> String? {
        spool.write(bytes) ?? (spool.isInPlace || places?.look() != true ? nil : spool.write(bytes))
    }

    /// Returns the body of a stored response in the requested forms, as for a completion.
    func inWishedForms(_ body: CachedBody, for flight: FlightName) -> CachedBody {
        let wishes = core.lend { $0.wishes(of: flight) }
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
