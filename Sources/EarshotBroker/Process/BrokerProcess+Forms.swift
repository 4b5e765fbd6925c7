internal import EarshotCore
internal import EarshotWire

/// Brings bodies into the forms that those who wait for them asked for, before the core hears of them.
extension BrokerProcess {
    /// A completion and its body: as a file too if somebody wants one, and in memory too if somebody wants that. What
    /// cannot be written or read stays in the form in which it came.
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

    /// Writes a file of the spool, which is made again for it if it was removed.
    private func write(_ bytes: [UInt8]) -> String? {
        spool.write(bytes) ?? (spool.isInPlace || places?.look() != true ? nil : spool.write(bytes))
    }

    /// The same for the body of a kept answer.
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
