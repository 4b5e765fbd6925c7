internal import EarshotWire

@testable internal import EarshotCore

/// Checks of READs after each step, and at the end.
extension PullTarget {
    /// READs that the core holds for a client.
    func core(_ peer: Int) -> [PullWindow.Read] {
        core.records.clients.handle(of: peers[peer].id).map { core.records.pulls.reads(of: $0) } ?? []
    }

    /// Generation of an open request; nil if there is none.
    func serial(_ handler: HandlerID, _ request: RequestID, _ peer: Int) -> UInt64? {
        guard let client = core.records.clients.handle(of: peers[peer].id),
            let number = core.records.handlers.handle(of: core.records.key(handler, of: client)),
            let interest = core.records.listedInterest(request, of: number),
            core.records.requests[interest].phase == .open,
            !core.records.isDoomed(interest)
        else { return nil }
        return core.records.requests[interest].generation
    }

    func check() {
        let faults = core.audit()
        precondition(faults.isEmpty, "\(faults)")
        for peer in peers.indices {
            let held = core(peer)
            precondition(held.count <= WireLimits.openReads, "\(held.count) READs, more than \(WireLimits.openReads)")
        }
    }

    /// Lets the core answer all that it can, and checks that no other READ waits.
    mutating func checkIdle() {
        (isRefusing, losesPieces) = (false, false)
        for peer in peers { core.clientWritable(peer.id) }
        var passes = 0
        repeat {
            pass()
            passes += 1
            precondition(passes < 1_000, "the core does not come to rest")
        } while core.records.pulls.isBehind
        check()
        for peer in peers.indices { checkIdle(peer) }
    }

    private func checkIdle(_ peer: Int) {
        guard core.records.clients.handle(of: peers[peer].id) != nil else { return }
        let held = core(peer)
        for read in held {
            guard let stream = read.stream else { preconditionFailure("a READ of a complete body waits: \(held)") }
            precondition(hasLostPieces || !hasBytes(for: read, stream), "\(read) waits for bytes that are there")
        }
        // READs of the same part may be answered in any order, and DATA without bytes does not tell which one it answers.
        var unnamedReads = held.map(\.message)
        for open in peers[peer].open where !isVoid(open, peer) {
            guard
                let index = unnamedReads.firstIndex(where: {
                    $0.body == open.read.body && $0.offset == open.read.offset
                })
            else { preconditionFailure("\(open.read) has no answer") }
            unnamedReads.remove(at: index)
        }
    }

    /// Whether a READ needs no answer, because its body can no longer be read.
    private func isVoid(_ open: OpenRead, _ peer: Int) -> Bool {
        switch open.read.body {
        case .terminal(let sequence):
            core.records.clients.handle(of: peers[owner(peer)].id).map { core.records.pulls.isClosed(sequence, to: $0) }
                ?? true
        case .request(let handler, let request):
            open.mayBeVoid || serial(handler, request, peer).map { $0 != open.serial } ?? true
        }
    }

    /// Whether the growing body has bytes for a READ that waits.
    private func hasBytes(for read: PullWindow.Read, _ stream: GenerationalHandle<Interest>) -> Bool {
        guard let interest = core.records.requests.resolve(stream), core.records.requests[interest].phase == .open
        else {
            return false
        }
        let flight = core.records.leaf(ofOpen: interest)
        guard case .running(let worker) = core.records.flights[flight].phase,
            let lease = core.records.workers[worker].leases[core.records.attempt(of: flight)], lease.part != nil
        else { return false }
        return lease.receivedBytes > read.message.offset
    }
}
