internal import EarshotWire

/// Bodies that the broker sends in a session with `bodies: pull`. A terminal is delivered when its body is in a file.
extension ClientCore {
    /// Delivers a terminal, or begins to read its body.
    mutating func deliver(_ delivery: Delivery) -> [ClientAction] {
        let response = delivery.terminal.response
        if response?.isPulled != true {
            pulls.ended(delivery.key)
            // A broker that sends bodies names no paths. Another machine must not choose files of this one.
            if isPulling, response?.file != nil { return [.deliver(delivery.lost())] }
            if response?.file == nil, !finishesNone { ledger.finish(delivery.id.sequence) }
            return [.deliver(delivery)]
        }
        // The consumer drops results of other programs under a shared handler.
        let isWanted = delivery.fetch != nil || subscriptions.contains { $0.matches(delivery.key.handler) }
        // No READ can name a terminal without a number.
        let isReadable = isWanted && delivery.id.sequence > 0
        return isReadable ? carryOut(pulls.ended(delivery)) : [.deliver(delivery.lost())]
    }

    mutating func progressReceived(_ progress: Progress) -> [ClientAction] {
        let key = RequestKey(progress.handler, progress.request)
        if isStale(key) { return [] }
        guard isPulling else { return [.report(.progress(progress))] }
        if progress.generation != nil, requests[key]?.fetch.value.options.streams == true {
            return carryOut([pulls.grew(progress)])
        }
        var progress = progress
        progress.file = nil
        return [.report(.progress(progress))]
    }

    /// - Parameter count: number of bytes in the message.
    mutating func dataReceived(_ data: BodyData, count: Int) -> [ClientAction] {
        carryOut(pulls.received(data, count: count))
    }

    /// - Parameter connection: number of the connection of the refused READ.
    mutating func readRefused(_ reply: ErrorReply, over connection: Int = 0) -> [ClientAction] {
        carryOut([pulls.refused(reply, over: connection)])
    }

    /// Stops reading bodies of cancelled or removed requests.
    mutating func dropBodies(where isRemoved: (RequestKey) -> Bool) {
        for sequence in pulls.drop(where: isRemoved) { ledger.finish(sequence) }
    }

    /// Returns the READs to send, and the files that are not needed any more.
    mutating func readOn() -> [ClientAction] {
        var actions = pulls.takeDiscarded().map { ClientAction.discard(file: $0) }
        guard phase == .ready else { return actions }
        for (read, connection) in pulls.reads() {
            actions += connection == 0 ? say(.read(read)) : [.read(read, connection: connection)]
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
            case .lose(let delivery): .deliver(delivery.lost())
            }
        }
    }
}
