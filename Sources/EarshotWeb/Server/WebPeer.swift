internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// Connection of one HTTP client.
///
/// ```
/// reading ──head──→ receiving ──body──→ answering ──response──→ reading | closing
///    └────────head without body────────────┘  └─────stream─────→ streaming ──→ closed
/// closing ──all written──→ lingering ──peer closes──→ closed
/// ```
///
/// It reads no further request before the response to the last one is written, so a peer cannot make it store responses. It reads
/// one request and writes `writeBytes` in a pass of the loop, so peers with many take turns with the others.
final class WebPeer {
    enum Phase: Equatable {
        /// Waits for a request.
        case reading
        /// Reads the body of a request.
        case receiving
        /// The owner prepares a response, or writes parts of it.
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

    /// Bounds and the owner's functions.
    struct Rules {
        /// Maximum size of a head in bytes.
        var headBytes = RequestHead.mostBytes
        /// Maximum size of a request's body in bytes.
        var bodyBytes = 0
        /// Time in which the peer must read some of the output.
        var writeTime = Duration.seconds(10)
        /// Whether a peer that ends its side before the response gets none.
        var endsWithPeer = false
        /// Returns the response to a request that cannot be read.
        var reject: (Int) -> WebResponse
        /// Returns a response if the request is refused before its body is read.
        var refuse: (WebPeer, RequestHead) -> WebResponse? = { _, _ in nil }
        var request: (WebPeer, RequestHead, _ body: [UInt8]) -> Void
        var closed: (WebPeer) -> Void
    }

    /// Time for a complete head, since the connection or the last response.
    static let requestTime = Duration.seconds(30)
    /// Time without a byte of a body, and time for a complete one.
    private static let (bodyPause, bodyTime) = (Duration.seconds(30), Duration.seconds(600))
    /// Time between comments in a stream, which show that it is open.
    private static let commentTime = Duration.seconds(30)
    /// Time for the peer to end its side of the connection.
    private static let lingerTime = Duration.seconds(1)
    /// Output of a stream that the peer has not read: about a minute of events.
    private static let mostUnsentBytes = 1 << 20
    /// Bytes read in one pass, and written.
    private static let (readBytes, writeBytes) = (16_384, 512 << 10)

    /// Part of the output.
    private enum Piece {
        case bytes([UInt8])
        case file(OpenFile, offset: Int, count: Int)

        var count: Int {
            switch self {
            case .bytes(let bytes): bytes.count
            case .file(_, _, let count): count
            }
        }
    }

    let descriptor: Int32
    private(set) var phase = Phase.reading
    /// Time of the last change from or to `reading`. The server drops the longest waiting connection first.
    private(set) var since: LoopTime
    /// Called when all output is written.
    var onDrained: () -> Void = {}
    private let loop: EventLoop
    private let rules: Rules
    private var registration: EventLoop.Registration?
    private var interest: EventLoop.Interest = .readable
    private var timer: TimerID?
    private var commentTimer: TimerID?
    private var input: [UInt8] = []
    /// Number of bytes of the input without the end of a head.
    private var searchedBytes = 0
    private var output: [Piece] = []
    /// Written bytes of the first piece of the output.
    private var written = 0
    private var head: RequestHead?
    private var body: [UInt8] = []
    private var chunks: ChunkedBody?
    private var bodyDeadline: LoopTime

    init(_ descriptor: Int32, _ rules: Rules, loop: EventLoop) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        self.rules = rules
        since = loop.now
        bodyDeadline = loop.now
        registration = try loop.add(descriptor, .readable) { [unowned self] readiness in ready(readiness) }
        setTimer(Self.requestTime)
    }

    /// Whether all output was written.
    var isDrained: Bool { output.isEmpty }

    // MARK: Responses

    /// Answers the current request.
    func respond(_ response: WebResponse) {
        guard phase == .answering, let head else { return }
        write(response.encoded(isHead: head.isHead, keepsAlive: head.keepsAlive))
        endResponse(keepsAlive: head.keepsAlive)
    }

    /// Queues bytes of the response to the current request.
    func write(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        // A head and a short body leave in one call. Written bytes of the first piece stay where they are.
        if output.count != 1 || written == 0, case .bytes(let last)? = output.last {
            output.removeLast()
            output.append(.bytes(last + bytes))
        } else {
            output.append(.bytes(bytes))
        }
    }

    /// Queues a part of a file.
    func write(_ file: OpenFile, from offset: Int, count: Int) {
        if count > 0 { output.append(.file(file, offset: offset, count: count)) }
    }

    /// Ends the response to the current request.
    func endResponse(keepsAlive: Bool) {
        guard phase == .answering else { return }
        enter(keepsAlive ? .reading : .closing)
        flush()
    }

    /// Answers the current request with a stream of events.
    func beginStream(_ fields: [(name: String, value: String)] = []) {
        guard phase == .answering, let head else { return }
        write(WebResponse.eventStream(fields))
        enter(head.isHead ? .closing : .streaming)
        flush()
        scheduleComment()
    }

    private func scheduleComment() {
        guard phase == .streaming else { return }
        commentTimer = loop.setTimer(after: Self.commentTime) { [weak self] in
            self?.send(event: Array(":\n\n".utf8))
            self?.scheduleComment()
        }
    }

    /// Sends an event. Closes a connection whose peer does not read.
    func send(event: [UInt8]) {
        guard phase == .streaming else { return }
        guard output.reduce(event.count - written, { $0 + $1.count }) <= Self.mostUnsentBytes else { return close() }
        write(event)
        flush()
    }

    /// Closes the connection.
    ///
    /// - Parameter resets: whether the peer learns that the response is incomplete.
    func close(resets: Bool = false) {
        guard phase != .closed else { return }
        phase = .closed
        if let registration { loop.remove(registration) }
        if let timer { loop.cancelTimer(timer) }
        if let commentTimer { loop.cancelTimer(commentTimer) }
        if resets { TCPSocket.resetOnClose(descriptor) }
        UnixSocket.close(descriptor)
        output = []
        rules.closed(self)
    }

    // MARK: Input

    private func ready(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.writable) {
            flush()
            proceed()
        }
        guard phase != .closed else { return }
        if readiness.contains(.error) || readiness.contains(.hangUp) { return close() }
        if readiness.contains(.peerEnd), rules.endsWithPeer, phase == .answering { return close() }
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
        case (.ended, .reading) where !isDrained: enter(.closing)
        case (.ended, _): close()
        // A stream accepts nothing further.
        case (.bytes, .streaming): break
        case (.bytes, .reading), (.bytes, .receiving):
            input += bytes
            proceed()
        }
    }

    /// Whether the input may contain a complete request.
    private var hasRequest: Bool { phase == .reading && searchedBytes < input.count }

    private func proceed() {
        if phase == .receiving { return readBody() }
        guard hasRequest, isDrained else { return }
        switch RequestHead.read(input, searched: searchedBytes, limit: rules.headBytes) {
        case .incomplete: searchedBytes = input.count
        case .rejected(let status): refuse(rules.reject(status))
        case .complete(let head, let length):
            input.removeFirst(length)
            searchedBytes = 0
            self.head = head
            guard head.bodyLength != .none else { return take([]) }
            if let refusal = rules.refuse(self, head) { return refuse(refusal) }
            beginBody(head)
        }
        updateInterest()
    }

    /// Sends a response, and ends the connection, whose further input cannot be read.
    private func refuse(_ response: WebResponse) {
        input = []
        write(response.encoded(isHead: head?.isHead ?? false, keepsAlive: false))
        enter(.closing)
        flush()
    }

    private func beginBody(_ head: RequestHead) {
        body = []
        switch head.bodyLength {
        case .none: return
        case .bytes(let count):
            guard count <= rules.bodyBytes else { return refuse(rules.reject(413)) }
            chunks = nil
        case .chunked: chunks = ChunkedBody(limit: rules.bodyBytes)
        }
        enter(.receiving)
        bodyDeadline = loop.now.advanced(by: Self.bodyTime)
        if head.expectsContinue, input.isEmpty {
            write(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8))
            flush()
            // The peer may have shut down its side for input.
            guard phase == .receiving else { return }
        }
        readBody()
    }

    private func readBody() {
        if chunks != nil {
            switch chunks?.read(&input) {
            case .complete?: take(chunks?.bytes ?? [])
            case .rejected(let status)?: refuse(rules.reject(status))
            case .incomplete?, nil: waitForBody()
            }
            return
        }
        guard case .bytes(let count)? = head?.bodyLength else { return }
        let part = input.prefix(count - body.count)
        body += part
        input.removeFirst(part.count)
        if body.count == count { take(body) } else { waitForBody() }
    }

    private func waitForBody() {
        let time = bodyDeadline.since(loop.now)
        if time <= .zero { close() } else { setTimer(min(Self.bodyPause, time)) }
    }

    /// Hands a complete request to the owner.
    private func take(_ body: [UInt8]) {
        guard let head else { return }
        self.body = []
        chunks = nil
        enter(.answering)
        rules.request(self, head, body)
        updateInterest()
    }

    private func enter(_ next: Phase) {
        phase = next
        since = loop.now
        switch next {
        case .reading: setTimer(Self.requestTime)
        case .receiving: setTimer(Self.bodyPause)
        case .closing: setTimer(rules.writeTime)
        case .lingering: setTimer(Self.lingerTime)
        case .answering, .streaming, .closed: cancelTimer()
        }
        updateInterest()
    }

    // MARK: Output

    /// Writes output as far as the kernel accepts it.
    func flush() {
        let hadOutput = !output.isEmpty
        var budget = Self.writeBytes
        while let piece = output.first, phase != .closed, budget > 0 {
            let transfer =
                switch piece {
                case .bytes(let bytes):
                    unsafe bytes[written...].withUnsafeBytes { unsafe UnixSocket.send(descriptor, $0) }
                case .file(let file, let offset, let count):
                    UnixSocket.send(
                        descriptor, file: file.descriptor, from: offset + written, count: min(count - written, budget))
                }
            switch transfer {
            case .bytes(let count):
                written += count
                budget -= count
                if written == piece.count {
                    output.removeFirst()
                    written = 0
                }
            case .wouldBlock:
                // A timer that runs began when the peer last accepted bytes.
                if timer == nil || budget < Self.writeBytes { setTimer(rules.writeTime) }
                return updateInterest()
            case .ended: return close()
            }
        }
        guard phase != .closed, output.isEmpty else { return updateInterest() }
        switch phase {
        case .closing:
            UnixSocket.endOutput(descriptor)
            enter(.lingering)
        case .streaming, .answering: cancelTimer()
        case .reading: setTimer(Self.requestTime)
        case .receiving, .lingering, .closed: break
        }
        updateInterest()
        if hadOutput { onDrained() }
    }

    private func updateInterest() {
        guard let registration, phase != .closed else { return }
        var interest: EventLoop.Interest = []
        switch phase {
        // Other input stays in the kernel, so a peer cannot fill the memory.
        case .reading: if !hasRequest { interest.insert(.readable) }
        case .receiving, .streaming, .lingering: interest.insert(.readable)
        case .answering: if rules.endsWithPeer { interest.insert(.peerEnd) }
        case .closing, .closed: break
        }
        // A connection that can be written wakes the loop at once, for the next request.
        if !output.isEmpty || hasRequest { interest.insert(.writable) }
        guard interest != self.interest else { return }
        self.interest = interest
        do throws(SystemError) { try loop.change(registration, to: interest) } catch { close() }
    }

    private func cancelTimer() {
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    private func setTimer(_ time: Duration) {
        cancelTimer()
        guard phase != .closed else { return }
        timer = loop.setTimer(after: time) { [weak self] in
            self?.timer = nil
            self?.close()
        }
    }
}

/// A file that is open for reading, closed with the last reference.
final class OpenFile {
    let descriptor: Int32

    /// Opens a regular file; nil without one.
    init?(_ path: String) {
        descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else { return nil }
    }

    /// Reads the file; nil if it is larger, or cannot be read.
    func bytes(atMost limit: Int) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: min(limit + 1, Int(lseek(descriptor, 0, SEEK_END)) + 1))
        var count = 0
        while count < bytes.count {
            let read = unsafe bytes.withUnsafeMutableBytes { buffer in
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[count...])
                return unsafe pread(descriptor, rest.baseAddress, rest.count, count)
            }
            guard read >= 0 else { return nil }
            if read == 0 { return Array(bytes.prefix(count)) }
            count += read
        }
        return nil
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}
