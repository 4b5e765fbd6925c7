internal import EarshotWire

@testable internal import EarshotCore

/// Checks of READs after each step, and at the end.
extension PullTarget {
    /// READs that the core holds for a client.
    func readsHeldByCore(of peer: Int) -> [PullWindow.Read] {
        core.records.clients.handle(of: peers[peer].id).map { core.records.bodyPulls.reads(of: $0) } ?? []
    }

    /// Generation of an open request; nil if there is none.
    func openGeneration(_ handler: HandlerID, _ request: RequestID, of peer: Int) -> UInt64? {
        guard let client = core.records.clients.handle(of: peers[peer].id),
            let number = core.records.handlers.handle(of: core.records.handlerKey(handler, of: client)),
            let interest = core.records.interestHoldingID(request, of: number),
            core.records.requests[interest].phase == .open,
            !core.records.isAwaitingRemoval(interest)
        else { return nil }
        return core.records.requests[interest].generation
    }

    func checkCoreAudit() {
        let faults = core.audit()
        precondition(faults.isEmpty, "\(faults)")
        for peer in peers.indices {
            let held = readsHeldByCore(of: peer)
            precondition(
                held.count <= WireLimits.openReadsPerSession,
                "\(held.count) READs, more than \(WireLimits.openReadsPerSession)")
        }
    }

    /// Lets the core answer all that it can, and checks that no other READ waits.
    mutating func checkAllReadsAnswered() {
        (refusesDeliveries, losesPieces) = (false, false)
        for peer in peers { core.clientSocketWritable(peer.id) }
        var passes = 0
        repeat {
            runPass()
            passes += 1
            precondition(passes < 1_000, "the core does not come to rest")
        } while core.records.bodyPulls.hasAnswerableReads
        checkCoreAudit()
        for peer in peers.indices { checkReadsAnswered(peer) }
    }

    private func checkReadsAnswered(_ peer: Int) {
        guard core.records.clients.handle(of: peers[peer].id) != nil else { return }
        let held = readsHeldByCore(of: peer)
        for read in held {
            guard let stream = read.growingBodyInterest else {
                preconditionFailure("a READ of a complete body waits: \(held)")
            }
            precondition(hasLostPieces || !hasUnsentBytes(for: read, stream), "\(read) waits for bytes that are there")
        }
        // READs of the same part may be answered in any order, and DATA without bytes does not tell which one it answers.
        var unnamedReads = held.map(\.message)
        for open in peers[peer].openReads where !needsNoAnswer(open, peer) {
            guard
                let index = unnamedReads.firstIndex(where: {
                    $0.body == open.read.body && $0.offset == open.read.offset
                })
            else { preconditionFailure("\(open.read) has no answer") }
            unnamedReads.remove(at: index)
        }
    }

    /// Whether a READ needs no answer, because its body can no longer be read.
    private func needsNoAnswer(_ open: OpenRead, _ peer: Int) -> Bool {
        switch open.read.body {
        case .terminal(let sequence):
            core.records.clients.handle(of: peers[bodyOwner(ofReader: peer)].id).map {
                core.records.bodyPulls.isBodyClosed(sequence, to: $0)
            }
                ?? true
        case .request(let handler, let request):
            open.mayNeedNoAnswer || openGeneration(handler, request, of: peer).map { $0 != open.serial } ?? true
        }
    }

    /// Whether the growing body has bytes for a READ that waits.
    private func hasUnsentBytes(for read: PullWindow.Read, _ stream: GenerationalHandle<Interest>) -> Bool {
        guard let interest = core.records.requests.resolve(stream), core.records.requests[interest].phase == .open
        else {
            return false
        }
        let flight = core.records.lastRedirectedFlight(ofOpen: interest)
        guard case .running(let worker) = core.records.flights[flight].phase,
            let lease = core.records.workers[worker].leases[core.records.currentAttempt(of: flight)],
            lease.partFile != nil
        else { return false }
        return lease.receivedBytes > read.message.offset
    }
}
