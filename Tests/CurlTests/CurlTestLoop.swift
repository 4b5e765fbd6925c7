import Curl
import Glibc

@testable import TestPeers

/// Owner of a multi handle for tests: poll(2) over its descriptors and those of an origin.
final class CurlTestLoop {
    let origin: LoopbackOrigin
    private(set) var multi: Multi?
    private(set) var finished: [FinishedTransfer] = []
    private var interests: [Int32: DescriptorInterest] = [:]
    /// Descriptors reported as new, in order.
    private(set) var newDescriptors: [Int32] = []
    /// Deadline of libcurl's timer, in milliseconds of the monotonic clock.
    private var timerDue: Int?

    init(
        origin: LoopbackOrigin, maxConnections: Int = 16, crowdedIdleSeconds: Int = Multi.limitReachedIdleSeconds
    ) throws {
        self.origin = origin
        multi = try Multi.make(maxConnections: maxConnections, limitReachedIdleSeconds: crowdedIdleSeconds)
    }

    var url: String { "http://127.0.0.1:\(origin.port)/file" }

    func start(_ request: TransferRequest, sink: RecordingSink) throws -> Transfer {
        guard let multi else { throw Loopback.Failure(call: "start", number: 0) }
        defer { take(multi) }
        return try multi.start(request, sink: sink)
    }

    func cancel(_ transfer: Transfer) {
        guard let multi else { return }
        multi.cancel(transfer)
        take(multi)
    }

    func resume(_ transfer: Transfer) {
        guard let multi else { return }
        multi.resume(transfer)
        take(multi)
    }

    /// Releases the multi handle with all running transfers.
    func dropMulti() {
        multi = nil
        interests = [:]
        timerDue = nil
    }

    /// Runs one transfer to its end.
    func fetch(_ request: TransferRequest, sink: RecordingSink = RecordingSink()) throws -> TransferResult? {
        _ = try start(request, sink: sink)
        let count = finished.count
        return run { $0.finished.count > count } ? finished.last?.result : nil
    }

    /// Runs until the condition holds; false after a minute.
    func run(until condition: (CurlTestLoop) -> Bool) -> Bool {
        let deadline = now() + 60_000
        while !condition(self) {
            guard now() < deadline else { return false }
            pass(deadline: deadline)
        }
        return true
    }

    /// Sends bytes on each connection of the origin, and waits until this many connections of the client have received
    /// them.
    func sendUnsolicited(_ text: String, connections: Int) -> Bool {
        origin.send(Array(text.utf8))
        return newDescriptors.suffix(connections).allSatisfy { descriptor in
            var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            return unsafe poll(&polled, 1, 60_000) == 1
        }
    }

    private func pass(deadline: Int) {
        var polled = origin.interests
        let ours = polled.count
        for interest in interests.values {
            let events = (interest.wantsReadability ? POLLIN : 0) | (interest.wantsWritability ? POLLOUT : 0)
            polled.append(pollfd(fd: interest.descriptor, events: Int16(events), revents: 0))
        }
        let wait = max(0, min(deadline, timerDue ?? .max) - now())
        _ = unsafe poll(&polled, nfds_t(polled.count), Int32(wait))
        for entry in polled[..<ours] where entry.revents != 0 { origin.ready(entry.fd) }
        guard let multi else { return }
        if let due = timerDue, due <= now() {
            timerDue = nil
            multi.timerFired()
            take(multi)
        }
        for entry in polled[ours...] where entry.revents != 0 {
            let events = Int32(entry.revents)
            multi.descriptorReady(
                entry.fd, reads: events & (POLLIN | POLLHUP) != 0, writes: events & POLLOUT != 0,
                fails: events & POLLERR != 0)
            take(multi)
        }
    }

    private func take(_ multi: Multi) {
        for interest in multi.takeInterests() {
            if interest.isNewSocket { newDescriptors.append(interest.descriptor) }
            interests[interest.descriptor] = interest.isUnwatched ? nil : interest
        }
        switch multi.takeTimeoutChange() {
        case .after(let milliseconds): timerDue = now() + milliseconds
        case .cancel: timerDue = nil
        case nil: break
        }
        finished += multi.takeFinishedTransfers()
    }

    private func now() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    }
}
