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
    private static let acceptanceTimeout = Duration.seconds(20)
    /// Maximum time for the last messages of the worker.
    private static let finalFlushTimeout = Duration.seconds(1)
    /// Maximum number of messages in each direction in one pass.
    private static let messagesPerPass = 64
    /// Maximum number of messages that the worker does not read.
    private static let maximumUnreadMessages = 256
    /// Maximum length of a frame of the worker: a body that the gateway relays, or a head.
    private static let maximumFrameBytes = WireLimits.remoteResponseBodyBytes + WireLimits.workerHeadBytes

    private let loop: EventLoop
    private let onFailure: (any Error) -> Void
    private var endpoints: EndpointList
    private var network: Network?
    private var curve: CurveLink?
    private var stream: MessageStream?
    /// Messages that the next end does not accept yet.
    private var heldOutwardMessage: Message?
    private var heldInwardMessage: Message?
    /// Pause before the next connection, in nanoseconds.
    private var reconnectPauseNanoseconds: Int64 = 0
    private var reconnectTimer: TimerID?
    private var acceptanceTimer: TimerID?
    private var isClosing = false

    /// - Parameters:
    ///   - endpoints: buses on networks in the order of preference; at least one.
    ///   - onFailure: called once if no bus can accept the worker.
    package init(_ endpoints: [BusEndpoint], loop: EventLoop, onFailure: @escaping (any Error) -> Void) {
        self.endpoints = EndpointList(endpoints)
        self.loop = loop
        self.onFailure = onFailure
        _ = loop.addHook { [unowned self] in pass() }
        acceptanceTimer = loop.setTimer(after: Self.acceptanceTimeout) { [unowned self] in
            acceptanceTimer = nil
            let (endpoint, ending) =
                self.endpoints.reportedFaults.first ?? (self.endpoints.currentEndpoint, .helloTimedOut)
            fail(ClientError(.refused, ending.userMessage(for: endpoint)))
        }
    }

    /// Returns the worker's end of a new connection, which the worker closes. The earlier connection ends.
    package func connectWorker() throws(SystemError) -> Int32 {
        dropConnection()
        let (own, other) = try UnixSocket.makePair()
        do throws(SystemError) {
            let stream = try MessageStream(
                own, as: .router, frameBytes: Self.maximumFrameBytes, maximumMessages: Self.maximumUnreadMessages,
                loop: loop
            ) {}
            // Nothing is read before the handshake with the bus.
            stream.isReading = false
            self.stream = stream
        } catch {
            UnixSocket.close(other)
            throw error
        }
        guard reconnectPauseNanoseconds > 0 else {
            connectToBus()
            return other
        }
        reconnectTimer = loop.setTimer(after: .nanoseconds(reconnectPauseNanoseconds)) { [unowned self] in
            reconnectTimer = nil
            connectToBus()
        }
        return other
    }

    /// Handles the LIMITS of a bus.
    package func workerAccepted() {
        endpoints.connected()
        reconnectPauseNanoseconds = 0
        if let acceptanceTimer { loop.cancelTimer(acceptanceTimer) }
        acceptanceTimer = nil
    }

    /// Sends the last messages of a worker that has closed its end, for a second at most. The loop must not run.
    package func close() {
        guard curve?.isOpen == true, stream != nil else { return dropConnection() }
        isClosing = true
        loop.setTimer(after: Self.finalFlushTimeout) { [unowned self] in loop.stop() }
        try? loop.run()
        curve?.linger(milliseconds: Int32(Self.finalFlushTimeout / .milliseconds(1)))
        dropConnection()
    }

    // MARK: The connection

    private func connectToBus() {
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

    private func dropConnection() {
        if let reconnectTimer { loop.cancelTimer(reconnectTimer) }
        reconnectTimer = nil
        (curve, stream, heldOutwardMessage, heldInwardMessage) = (nil, nil, nil, nil)
    }

    /// Ends the worker's connection, which then makes another one.
    private func connectionLost(_ ending: LinkEnding) {
        let now = Int(loop.now.nanoseconds / 1_000_000)
        switch endpoints.connectionFailed(ending, at: now, random: .random(in: 0 ... .max)) {
        case .noEndpointLeft(let endpoint, let ending): fail(ClientError(.refused, ending.userMessage(for: endpoint)))
        case .connect(let pause):
            if endpoints.isSessionElsewhere { endpoints.sessionEnded() }
            reconnectPauseNanoseconds = pause
        }
        dropConnection()
    }

    private func fail(_ error: ClientError) {
        dropConnection()
        onFailure(error)
    }

    // MARK: The pass

    private func pass() -> EventLoop.SleepLimit {
        guard let curve, let stream else { return .untilEvent }
        _ = curve.readConnectionEvents()
        let isMoreOutward = sendOutward(curve, stream)
        let isMoreInward = sendInward(curve, stream)
        stream.flush()
        if stream.isEnded, heldOutwardMessage == nil {
            if isClosing { loop.stop() } else { connectionLost(.connectionLost) }
            return .untilEvent
        }
        if let ending = curve.ending, heldInwardMessage == nil, !curve.needsPass(hasUnsent: false) {
            if isClosing { loop.stop() } else { connectionLost(ending) }
            return .untilEvent
        }
        // The flush may have made room without an event.
        let hasRoom = heldInwardMessage != nil && stream.unsentMessages < Self.maximumUnreadMessages
        let isPending =
            isMoreOutward || isMoreInward || hasRoom || curve.needsPass(hasUnsent: heldOutwardMessage != nil)
        return isPending ? .noSleep : .untilEvent
    }

    /// - Returns: whether the worker may have sent more.
    private func sendOutward(_ curve: CurveLink, _ stream: MessageStream) -> Bool {
        stream.isReading = curve.isOpen && heldOutwardMessage == nil
        guard curve.isOpen else { return false }
        for _ in 0..<Self.messagesPerPass {
            guard let message = heldOutwardMessage ?? stream.next() else { return false }
            guard curve.send(message) else {
                heldOutwardMessage = message
                stream.isReading = false
                return false
            }
            heldOutwardMessage = nil
            stream.isReading = true
        }
        return stream.mayHavePendingMessage
    }

    /// - Returns: whether the bus may have sent more.
    private func sendInward(_ curve: CurveLink, _ stream: MessageStream) -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard let message = heldInwardMessage ?? curve.nextMessage() else { return false }
            guard stream.send(message) else {
                heldInwardMessage = message
                curve.isReading = false
                return false
            }
            heldInwardMessage = nil
            curve.isReading = true
        }
        return true
    }
}
