internal import EarshotWire

/// Bodies in files: those that the broker sends in a session with `bodies: pull`, and those whose ownership the
/// consumer requests. A terminal is delivered when its body is in a file of this process, or when TAKEN has arrived.
extension ClientCore {
    /// Minimum size of a file that the core requests with TAKE, in bytes. Below it the copy costs less than the round
    /// trip; the measurement is in docs/decisions/163-body-files.md.
    static let minimumTakenFileBytes = 64 << 10

    /// Delivers a terminal, or begins to read its body, or requests its file.
    mutating func deliver(_ delivery: DeliveredTerminal) -> [ClientAction] {
        let response = delivery.terminal.response
        if response?.isPulled != true {
            pulls.bodylessTerminalReceived(delivery.key)
            // A broker that sends bodies names no paths. Another machine must not choose files of this one.
            if isPulling, response?.bodyFilePath != nil { return [.deliver(delivery.withMissingFile())] }
            if response?.bodyFilePath == nil, !consumerFinishesDeliveries {
                deliveryLedger.finish(delivery.id.sequence)
            }
            guard takesFiles, let response, response.bodyFilePath != nil,
                response.bodyByteCount >= Self.minimumTakenFileBytes,
                delivery.fetch != nil, !delivery.terminal.isDurable
            else { return [.deliver(delivery)] }
            terminalsAwaitingTaken[delivery.id.sequence] = delivery
            return sendAwaitingAnswer(.takeFile(delivery.id.sequence))
        }
        // The consumer drops results of other programs under a shared handler.
        let isWanted = delivery.fetch != nil || subscriptions.contains { $0.matches(delivery.key.handler) }
        // No READ can name a terminal without a number.
        let isReadable = isWanted && delivery.id.sequence > 0
        return isReadable ? makeActions(for: pulls.terminalReceived(delivery)) : [.deliver(delivery.withMissingFile())]
    }

    /// Delivers a terminal after the answer to TAKE.
    ///
    /// - Parameter path: the file that the consumer owns; nil if it copies the file of the terminal.
    mutating func fileTaken(_ sequence: UInt64, _ path: String?) -> [ClientAction] {
        guard let delivery = terminalsAwaitingTaken.removeValue(forKey: sequence) else { return [] }
        return [.deliver(path.map { delivery.withOwnedFile($0) } ?? delivery)]
    }

    /// Delivers the terminals of a session that has ended without TAKEN. The consumer requests lost bodies again.
    mutating func deliverUntakenTerminals() -> [ClientAction] {
        defer { terminalsAwaitingTaken = [:] }
        return terminalsAwaitingTaken.values.sorted { $0.id.sequence < $1.id.sequence }.map { .deliver($0) }
    }

    mutating func progressReceived(_ progress: Progress) -> [ClientAction] {
        let key = RequestKey(progress.handler, progress.request)
        if hasPendingRemoval(key) { return [] }
        guard isPulling else { return [.report(.progress(progress))] }
        if progress.generation != nil, requests[key]?.fetch.value.options.streams == true {
            return makeActions(for: [pulls.bodyGrew(progress)])
        }
        var progress = progress
        progress.filePath = nil
        return [.report(.progress(progress))]
    }

    /// - Parameters:
    ///   - count: number of bytes in the message.
    ///   - connection: number of its connection.
    mutating func dataReceived(_ data: BodyData, count: Int, over connection: Int = 0) -> [ClientAction] {
        guard data.errorCode == nil else { return makeActions(for: [pulls.readRefused(data, over: connection)]) }
        return makeActions(for: pulls.dataReceived(data, count: count))
    }

    /// Stops reading and taking bodies of cancelled or removed requests.
    mutating func discardBodies(where isRemoved: (RequestKey) -> Bool) {
        for sequence in pulls.discardBodies(where: isRemoved) { deliveryLedger.finish(sequence) }
        guard !terminalsAwaitingTaken.isEmpty else { return }
        for (sequence, delivery) in terminalsAwaitingTaken where isRemoved(delivery.key) {
            terminalsAwaitingTaken[sequence] = nil
            deliveryLedger.finish(sequence)
        }
    }

    /// Returns the READs to send, and the files that are not needed any more.
    mutating func continueReading() -> [ClientAction] {
        var actions = pulls.takeDiscardedFiles().map { ClientAction.discard(file: $0) }
        guard phase == .ready else { return actions }
        for (read, connection) in pulls.nextReads() {
            actions += connection == 0 ? send(.readBody(read)) : [.sendRead(read, connection: connection)]
        }
        return actions
    }

    func makeActions(for steps: [BodyPulls.Step]) -> [ClientAction] {
        steps.compactMap { step in
            switch step {
            case .ignore: nil
            case .store(let file, let offset, let count): .store(file: file, offset: offset, count: count)
            case .reportProgress(let progress, let file): .reportGrowth(progress, file: file)
            case .beginBody(let delivery, let file): .beginBody(delivery, file: file)
            case .reportArrival(let delivery, let bytes, let file): .reportArrival(delivery, bytes: bytes, file: file)
            case .deliverWithBody(let delivery, let file): .deliverReceived(delivery, file: file)
            case .deliverWithoutBody(let delivery): .deliver(delivery.withMissingFile())
            }
        }
    }
}
