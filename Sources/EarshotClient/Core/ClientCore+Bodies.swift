internal import EarshotWire

/// Bodies in files: those that the broker sends in a session with `bodies: pull`, and those whose ownership the consumer
/// asks for. A terminal is delivered when its body is in a file of this process, or when TAKEN has come.
extension ClientCore {
    /// Size from which on a file is asked for by TAKE, in bytes. Below it the copy costs less than the round trip; the
    /// measurement is in docs/decisions/163-body-files.md.
    static let leastTakenBytes = 64 << 10

    /// Delivers a terminal, or begins to read its body, or asks for its file.
    mutating func deliver(_ delivery: DeliveredTerminal) -> [ClientAction] {
        let response = delivery.terminal.response
        if response?.isPulled != true {
            pulls.ended(delivery.key)
            // A broker that sends bodies names no paths. Another machine must not choose files of this one.
            if isPulling, response?.file != nil { return [.deliver(delivery.withMissingFile())] }
            if response?.file == nil, !finishesNone { ledger.finish(delivery.id.sequence) }
            guard takesFiles, let response, response.file != nil, response.length >= Self.leastTakenBytes,
                delivery.fetch != nil, !delivery.terminal.isDurable
            else { return [.deliver(delivery)] }
            taking[delivery.id.sequence] = delivery
            return submit(.take(delivery.id.sequence))
        }
        // The consumer drops results of other programs under a shared handler.
        let isWanted = delivery.fetch != nil || subscriptions.contains { $0.matches(delivery.key.handler) }
        // No READ can name a terminal without a number.
        let isReadable = isWanted && delivery.id.sequence > 0
        return isReadable ? carryOut(pulls.ended(delivery)) : [.deliver(delivery.withMissingFile())]
    }

    /// Delivers a terminal after the answer to TAKE.
    ///
    /// - Parameter path: the file that the consumer owns; nil if it copies the file of the terminal.
    mutating func fileTaken(_ sequence: UInt64, _ path: String?) -> [ClientAction] {
        guard let delivery = taking.removeValue(forKey: sequence) else { return [] }
        return [.deliver(path.map { delivery.owning($0) } ?? delivery)]
    }

    /// Delivers the terminals of a session that has ended without TAKEN. The consumer requests lost bodies again.
    mutating func stopTaking() -> [ClientAction] {
        defer { taking = [:] }
        return taking.values.sorted { $0.id.sequence < $1.id.sequence }.map { .deliver($0) }
    }

    mutating func progressReceived(_ progress: Progress) -> [ClientAction] {
        let key = RequestKey(progress.handler, progress.request)
        if isStale(key) { return [] }
        guard isPulling else { return [.report(.progress(progress))] }
        if progress.generation != nil, requests[key]?.fetch.value.options.streams == true {
            return carryOut([pulls.bodyGrew(progress)])
        }
        var progress = progress
        progress.file = nil
        return [.report(.progress(progress))]
    }

    /// - Parameters:
    ///   - count: number of bytes in the message.
    ///   - connection: number of its connection.
    mutating func dataReceived(_ data: BodyData, count: Int, over connection: Int = 0) -> [ClientAction] {
        carryOut(
            data.error == nil
                ? pulls.received(data, count: count) : [pulls.readRefused(data, over: connection)])
    }

    /// Stops reading and taking bodies of cancelled or removed requests.
    mutating func dropBodies(where isRemoved: (RequestKey) -> Bool) {
        for sequence in pulls.drop(where: isRemoved) { ledger.finish(sequence) }
        guard !taking.isEmpty else { return }
        for (sequence, delivery) in taking where isRemoved(delivery.key) {
            taking[sequence] = nil
            ledger.finish(sequence)
        }
    }

    /// Returns the READs to send, and the files that are not needed any more.
    mutating func readOn() -> [ClientAction] {
        var actions = pulls.takeDiscarded().map { ClientAction.discard(file: $0) }
        guard phase == .ready else { return actions }
        for (read, connection) in pulls.reads() {
            actions += connection == 0 ? send(.read(read)) : [.read(read, connection: connection)]
        }
        return actions
    }

    func carryOut(_ steps: [BodyPulls.Step]) -> [ClientAction] {
        steps.compactMap { step in
            switch step {
            case .none: nil
            case .store(let file, let offset, let count): .store(file: file, offset: offset, count: count)
            case .report(let progress, let file): .reportGrowth(progress, file: file)
            case .begin(let delivery, let file): .beginBody(delivery, file: file)
            case .arrived(let delivery, let bytes, let file): .reportArrival(delivery, bytes: bytes, file: file)
            case .deliver(let delivery, let file): .deliverReceived(delivery, file: file)
            case .lose(let delivery): .deliver(delivery.withMissingFile())
            }
        }
    }
}
