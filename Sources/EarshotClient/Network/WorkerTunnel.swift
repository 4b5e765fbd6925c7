package import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// Connection of a worker to a bus on a network: a pair of sockets, of which the worker has one end. It speaks ZMTP
/// there as with a broker of its machine. The tunnel passes the messages on by libzmq.
///
/// ```
/// waiting ──pause over──→ connecting ──handshake──→ open
/// any ──connection lost──→ lost ──connect()──→ waiting
/// ```
package final class WorkerTunnel {
    /// Maximum time until the first bus accepts the worker.
    private static let patience = Duration.seconds(20)
    /// Maximum time for the last messages of the worker.
    private static let partingTime = Duration.seconds(1)
    /// Maximum number of messages in each direction in one pass.
    private static let messagesPerPass = 64
    /// Maximum number of messages that the worker does not read.
    private static let unreadMessages = 256
    /// Maximum length of a frame of the worker: a body that the gateway relays, or a head.
    private static let frameBytes = WireLimits.remoteBodyBytes + WireLimits.workerHeadBytes

    private let loop: EventLoop
    private let onFailure: (any Error) -> Void
    private var endpoints: EndpointList
    private var network: Network?
    private var curve: CurveLink?
    private var stream: MessageStream?
    /// Messages that the next end does not accept yet.
    private var outward: Message?
    private var inward: Message?
    /// Pause before the next connection, in nanoseconds.
    private var pause: Int64 = 0
    private var pauseTimer: TimerID?
    private var patienceTimer: TimerID?
    private var isClosing = false

    /// - Parameters:
    ///   - endpoints: buses on networks in the order of preference; at least one.
    ///   - onFailure: called once if no bus can accept the worker.
    package init(_ endpoints: [BusEndpoint], loop: EventLoop, onFailure: @escaping (any Error) -> Void) {
        self.endpoints = EndpointList(endpoints)
        self.loop = loop
        self.onFailure = onFailure
        _ = loop.addHook { [unowned self] in pass() }
        patienceTimer = loop.setTimer(after: Self.patience) { [unowned self] in
            patienceTimer = nil
            let (endpoint, ending) = self.endpoints.reportedFaults.first ?? (self.endpoints.currentEndpoint, .silent)
            fail(ClientError(.refused, ending.sentence(endpoint)))
        }
    }

    /// Returns the worker's end of a new connection, which the worker closes. The earlier connection ends.
    package func connect() throws(SystemError) -> Int32 {
        drop()
        let (own, other) = try UnixSocket.makePair()
        do throws(SystemError) {
            let stream = try MessageStream(
                own, as: .router, frameBytes: Self.frameBytes, mostMessages: Self.unreadMessages, loop: loop
            ) {}
            // Nothing is read before the handshake with the bus.
            stream.isReading = false
            self.stream = stream
        } catch {
            UnixSocket.close(other)
            throw error
        }
        guard pause > 0 else {
            begin()
            return other
        }
        pauseTimer = loop.setTimer(after: .nanoseconds(pause)) { [unowned self] in
            pauseTimer = nil
            begin()
        }
        return other
    }

    /// Handles the LIMITS of a bus.
    package func accepted() {
        endpoints.connected()
        pause = 0
        if let patienceTimer { loop.cancelTimer(patienceTimer) }
        patienceTimer = nil
    }

    /// Sends the last messages of a worker that has closed its end, for a second at most. The loop must not run.
    package func close() {
        guard curve?.isOpen == true, stream != nil else { return drop() }
        isClosing = true
        loop.setTimer(after: Self.partingTime) { [unowned self] in loop.stop() }
        try? loop.run()
        curve?.linger(milliseconds: Int32(Self.partingTime / .milliseconds(1)))
        drop()
    }

    // MARK: The connection

    private func begin() {
        guard case .remote(let address, let key, let serverKey) = endpoints.currentEndpoint.kind else {
            return fail(ClientError(.invalidRequest, "\(endpoints.currentEndpoint) is no address of a network"))
        }
        do {
            let network = try network ?? Network()
            self.network = network
            curve = try CurveLink(
                address, key, serverKey: serverKey, usesIPv6: endpoints.usesIPv6, network, loop: loop)
        } catch let error as ClientError {
            fail(error)
        } catch {
            fail(ClientError(.library, "cannot connect to \(address): \(error)"))
        }
    }

    private func drop() {
        if let pauseTimer { loop.cancelTimer(pauseTimer) }
        pauseTimer = nil
        (curve, stream, outward, inward) = (nil, nil, nil, nil)
    }

    /// Ends the worker's connection, which then makes another one.
    private func connectionLost(_ ending: LinkEnding) {
        let now = Int(loop.now.nanoseconds / 1_000_000)
        switch endpoints.failed(ending, at: now, random: .random(in: 0 ... .max)) {
        case .fail(let endpoint, let ending): fail(ClientError(.refused, ending.sentence(endpoint)))
        case .connect(let pause):
            if endpoints.isAway { endpoints.sessionEnded() }
            self.pause = pause
        }
        drop()
    }

    private func fail(_ error: ClientError) {
        drop()
        onFailure(error)
    }

    // MARK: The pass

    private func pass() -> EventLoop.Rest {
        guard let curve, let stream else { return .untilEvent }
        _ = curve.advance()
        let isMoreOutward = sendOutward(curve, stream)
        let isMoreInward = sendInward(curve, stream)
        stream.flush()
        if stream.isEnded, outward == nil {
            if isClosing { loop.stop() } else { connectionLost(.lost) }
            return .untilEvent
        }
        if let ending = curve.ending, inward == nil, !curve.needsPass(hasUnsent: false) {
            if isClosing { loop.stop() } else { connectionLost(ending) }
            return .untilEvent
        }
        // The flush may have made room without an event.
        let hasRoom = inward != nil && stream.unsentMessages < Self.unreadMessages
        let isPending = isMoreOutward || isMoreInward || hasRoom || curve.needsPass(hasUnsent: outward != nil)
        return isPending ? .none : .untilEvent
    }

    /// - Returns: whether the worker may have sent more.
    private func sendOutward(_ curve: CurveLink, _ stream: MessageStream) -> Bool {
        stream.isReading = curve.isOpen && outward == nil
        guard curve.isOpen else { return false }
        for _ in 0..<Self.messagesPerPass {
            guard let message = outward ?? stream.next() else { return false }
            guard curve.send(message) else {
                outward = message
                stream.isReading = false
                return false
            }
            outward = nil
            stream.isReading = true
        }
        return stream.hasPending
    }

    /// - Returns: whether the bus may have sent more.
    private func sendInward(_ curve: CurveLink, _ stream: MessageStream) -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard let message = inward ?? curve.next() else { return false }
            guard stream.send(message) else {
                inward = message
                curve.isReading = false
                return false
            }
            inward = nil
            curve.isReading = true
        }
        return true
    }
}
