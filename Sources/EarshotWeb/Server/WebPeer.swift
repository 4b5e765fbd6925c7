internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// Connection of one HTTP client.
///
/// ```
/// reading ──head──→ answering ──response──→ reading | closing
///                       └─────stream─────→ streaming ──→ closed
/// closing ──all written──→ lingering ──peer closes──→ closed
/// ```
///
/// It reads no further request before the response to the last one is written, so a peer cannot make it store responses. It reads
/// one request in a pass of the loop, so peers with many take turns with the others.
final class WebPeer {
    enum Phase: Equatable {
        /// Waits for a request.
        case reading
        /// The server prepares a response.
        case answering
        /// Receives server-sent events until it closes.
        case streaming
        /// Ends when the output is written.
        case closing
        /// Has ended its side, and drops input until the peer ends the other. Unread input would reset the connection, and
        /// the peer could lose the response.
        case lingering
        case closed
    }

    /// Time for a complete request, since the connection or the last response.
    static let requestTime = Duration.seconds(30)
    /// Time in which the peer must read some of the output.
    private static let writeTime = Duration.seconds(10)
    /// Time for the peer to end its side of the connection.
    private static let lingerTime = Duration.seconds(1)
    /// Output of a stream that the peer has not read: about a minute of events.
    private static let mostUnsentBytes = 1 << 20
    /// Bytes read in one pass.
    private static let readBytes = 16_384

    let descriptor: Int32
    private(set) var phase = Phase.reading
    /// Time of the last change from or to `reading`. The server drops the longest waiting connection first.
    private(set) var since: LoopTime
    private let loop: EventLoop
    private let onRequest: (WebPeer, RequestHead) -> Void
    private let onReject: (Int) -> WebResponse
    private let onClosed: (WebPeer) -> Void
    private var registration: EventLoop.Registration?
    private var timer: TimerID?
    private var input: [UInt8] = []
    /// Number of bytes of the input without the end of a head.
    private var searched = 0
    private var output: [UInt8] = []
    private var written = 0
    private var head: RequestHead?

    init(
        _ descriptor: Int32, loop: EventLoop, onReject: @escaping (Int) -> WebResponse,
        onRequest: @escaping (WebPeer, RequestHead) -> Void, onClosed: @escaping (WebPeer) -> Void
    ) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        self.onReject = onReject
        self.onRequest = onRequest
        self.onClosed = onClosed
        since = loop.now
        registration = try loop.add(descriptor, .readable) { [unowned self] readiness in ready(readiness) }
        setTimer(Self.requestTime)
    }

    // MARK: Responses

    /// Answers the current request.
    func respond(_ response: WebResponse) {
        guard phase == .answering, let head else { return }
        output += response.encoded(isHead: head.isHead, keepsAlive: head.keepsAlive)
        enter(head.keepsAlive ? .reading : .closing)
        flush()
    }

    /// Answers the current request with a stream of events.
    func beginStream() {
        guard phase == .answering, let head else { return }
        output += WebResponse.eventStream
        enter(head.isHead ? .closing : .streaming)
        flush()
    }

    /// Sends an event. Closes a connection whose peer does not read.
    func send(event: [UInt8]) {
        guard phase == .streaming else { return }
        guard output.count - written + event.count <= Self.mostUnsentBytes else { return close() }
        output += event
        flush()
    }

    func close() {
        guard phase != .closed else { return }
        phase = .closed
        if let registration { loop.remove(registration) }
        if let timer { loop.cancelTimer(timer) }
        UnixSocket.close(descriptor)
        onClosed(self)
    }

    // MARK: Input and output

    private func ready(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.writable) {
            flush()
            readHead()
        }
        guard phase != .closed else { return }
        if readiness.contains(.error) || readiness.contains(.hangUp) { return close() }
        guard readiness.contains(.readable) else { return }
        var transfer = UnixSocket.Transfer.wouldBlock
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Self.readBytes) { buffer, count in
            transfer = unsafe UnixSocket.receive(descriptor, into: UnsafeMutableRawBufferPointer(buffer))
            if case .bytes(let received) = transfer { count = received }
        }
        switch (transfer, phase) {
        case (.wouldBlock, _), (_, .answering), (_, .closing), (_, .closed): break
        case (.bytes, .lingering): break
        // The peer has shut down its side, and still reads.
        case (.ended, .reading) where written < output.count: enter(.closing)
        case (.ended, _): close()
        // A stream accepts nothing further.
        case (.bytes, .streaming): break
        case (.bytes, .reading):
            input += bytes
            readHead()
        }
    }

    /// Whether the input may contain a complete request.
    private var hasRequest: Bool { phase == .reading && searched < input.count }

    private func readHead() {
        guard hasRequest, written == output.count else { return }
        switch RequestHead.read(input, searched: searched) {
        case .incomplete: searched = input.count
        case .rejected(let status):
            input = []
            output += onReject(status).encoded(isHead: false, keepsAlive: false)
            enter(.closing)
            flush()
        case .complete(let head, let length):
            input.removeFirst(length)
            searched = 0
            self.head = head
            enter(.answering)
            onRequest(self, head)
        }
        updateInterest()
    }

    private func enter(_ next: Phase) {
        phase = next
        since = loop.now
        switch next {
        case .reading: setTimer(Self.requestTime)
        case .closing: setTimer(Self.writeTime)
        case .lingering: setTimer(Self.lingerTime)
        case .answering, .streaming, .closed:
            if let timer { loop.cancelTimer(timer) }
            timer = nil
        }
        updateInterest()
    }

    private func flush() {
        while written < output.count, phase != .closed {
            let transfer = unsafe output[written...].withUnsafeBytes { unsafe UnixSocket.send(descriptor, $0) }
            switch transfer {
            case .bytes(let count): written += count
            case .wouldBlock:
                if timer == nil { setTimer(Self.writeTime) }
                return updateInterest()
            case .ended: return close()
            }
        }
        guard phase != .closed else { return }
        output = []
        written = 0
        switch phase {
        case .closing:
            shutdown(descriptor, Int32(SHUT_WR))
            enter(.lingering)
        case .streaming:
            if let timer { loop.cancelTimer(timer) }
            timer = nil
        case .reading, .answering, .lingering, .closed: break
        }
        updateInterest()
    }

    private func updateInterest() {
        guard let registration, phase != .closed else { return }
        var interest: EventLoop.Interest = []
        // Other input stays in the kernel, so a peer cannot fill the memory.
        if phase == .reading && !hasRequest || phase == .streaming || phase == .lingering { interest.insert(.readable) }
        // A connection that can be written wakes the loop at once, for the next request.
        if written < output.count || hasRequest { interest.insert(.writable) }
        do throws(SystemError) { try loop.change(registration, to: interest) } catch { close() }
    }

    private func setTimer(_ time: Duration) {
        if let timer { loop.cancelTimer(timer) }
        timer = loop.setTimer(after: time) { [unowned self] in
            timer = nil
            close()
        }
    }
}
