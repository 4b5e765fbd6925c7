internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// Connection of one HTTP client.
///
/// ```
/// awaitingRequest ──head──→ receiving ──body──→ answering ──response──→ awaitingRequest | closing
///    └────────head without body────────────────────┘  └─────stream─────→ streaming ──→ closed
/// closing ──all written──→ awaitingPeerClose ──peer closes──→ closed
/// ```
///
/// It reads no further request before the response to the last one is written, so a peer cannot make it store
/// responses. It reads one request and writes `writeBytes` in a pass of the loop, so peers with many take turns with
/// the others.
final class WebPeer {
    enum Phase: Equatable {
        /// Waits for a request.
        case awaitingRequest
        /// Reads the body of a request.
        case receiving
        /// The owner prepares a response, or writes parts of it.
        case answering
        /// Receives server-sent events until it closes.
        case streaming
        /// Ends when the output is written.
        case closing
        /// Has ended its side, and drops input until the peer ends the other. Unread input would reset the connection,
        /// and the peer could lose the response.
        case awaitingPeerClose
        case closed
    }

    /// Bounds and the owner's functions.
    struct Rules {
        /// Maximum size of a head in bytes.
        var headBytes = RequestHead.defaultMaximumBytes
        /// Maximum size of a request's body in bytes.
        var bodyBytes = 0
        /// Time in which the peer must read some of the output.
        var writeTime = Duration.seconds(10)
        /// Whether a peer that ends its side before the response gets none.
        var abandonsHalfClosedPeer = false
        /// Returns the response to a request that cannot be read.
        var rejectionResponse: (Int) -> WebResponse
        /// Returns a response if the request is refused before its body is read.
        var refusalBeforeBody: (WebPeer, RequestHead) -> WebResponse? = { _, _ in nil }
        var onRequest: (WebPeer, RequestHead, _ body: [UInt8]) -> Void
        var onClose: (WebPeer) -> Void
    }

    /// Time for a complete head, since the connection or the last response.
    static let requestTime = Duration.seconds(30)
    /// Time without a byte of a body, and time for a complete one.
    private static let (bodyPause, bodyTime) = (Duration.seconds(30), Duration.seconds(600))
    /// Time between comments in a stream, which show that it is open.
    private static let commentInterval = Duration.seconds(30)
    /// Time for the peer to end its side of the connection.
    private static let lingerTime = Duration.seconds(1)
    /// Output of a stream that the peer has not read: about a minute of events.
    private static let maximumUnsentBytes = 1 << 20
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
    private(set) var phase = Phase.awaitingRequest
    /// Time of the last change of the phase. The server drops the longest waiting connection first.
    private(set) var phaseChangeTime: LoopTime
    /// Called when all output is written.
    var onDrained: () -> Void = {}
    private let loop: EventLoop
    private let rules: Rules
    private var registration: EventLoop.Registration?
    private var interest: EventLoop.Interest = .readable
    private var phaseTimer: TimerID?
    private var commentTimer: TimerID?
    private var input: [UInt8] = []
    /// Number of bytes of the input without the end of a head.
    private var searchedBytes = 0
    private var output: [Piece] = []
    /// Written bytes of the first piece of the output.
    private var writtenPieceBytes = 0
    private var head: RequestHead?
    private var body: [UInt8] = []
    private var chunks: ChunkedBody?
    private var bodyDeadline: LoopTime

    init(descriptor: Int32, rules: Rules, loop: EventLoop) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        self.rules = rules
        phaseChangeTime = loop.now
        bodyDeadline = loop.now
        registration = try loop.add(descriptor, .readable) { [unowned self] readiness in handleReadiness(readiness) }
        setTimer(Self.requestTime)
    }

    /// Whether all output was written.
    var isDrained: Bool { output.isEmpty }

    // MARK: Responses

    /// Answers the current request.
    func respond(_ response: WebResponse) {
        guard phase == .answering, let head else { return }
        write(response.encoded(isHead: head.isHEADMethod, keepsAlive: head.keepsAlive))
        endResponse(keepsAlive: head.keepsAlive)
    }

    /// Queues bytes of the response to the current request.
    func write(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        // A head and a short body leave in one call. Written bytes of the first piece stay where they are.
        if output.count != 1 || writtenPieceBytes == 0, case .bytes(let last)? = output.last {
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
        enter(keepsAlive ? .awaitingRequest : .closing)
        flush()
    }

    /// Answers the current request with a stream of events.
    func beginStream(_ fields: [(name: String, value: String)] = []) {
        guard phase == .answering, let head else { return }
        write(WebResponse.eventStreamHead(fields))
        enter(head.isHEADMethod ? .closing : .streaming)
        flush()
        scheduleComment()
    }

    private func scheduleComment() {
        guard phase == .streaming else { return }
        commentTimer = loop.setTimer(after: Self.commentInterval) { [weak self] in
            self?.send(event: Array(":\n\n".utf8))
            self?.scheduleComment()
        }
    }

    /// Sends an event. Closes a connection whose peer does not read.
    func send(event: [UInt8]) {
        guard phase == .streaming else { return }
        guard output.reduce(event.count - writtenPieceBytes, { $0 + $1.count }) <= Self.maximumUnsentBytes else {
            return close()
        }
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
        if let phaseTimer { loop.cancelTimer(phaseTimer) }
        if let commentTimer { loop.cancelTimer(commentTimer) }
        if resets { TCPSocket.resetOnClose(descriptor) }
        UnixSocket.close(descriptor)
        output = []
        rules.onClose(self)
    }

    // MARK: Input

    private func handleReadiness(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.writable) {
            flush()
            parseInput()
        }
        guard phase != .closed else { return }
        if readiness.contains(.error) || readiness.contains(.hangUp) { return close() }
        if readiness.contains(.peerClosedOutput), rules.abandonsHalfClosedPeer, phase == .answering { return close() }
        guard readiness.contains(.readable) else { return }
        var transfer = UnixSocket.TransferResult.wouldBlock
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Self.readBytes) { buffer, count in
            transfer = unsafe UnixSocket.receive(descriptor, into: UnsafeMutableRawBufferPointer(buffer))
            if case .bytesTransferred(let received) = transfer { count = received }
        }
        switch (transfer, phase) {
        case (.wouldBlock, _), (_, .answering), (_, .closing), (_, .closed): break
        case (.bytesTransferred, .awaitingPeerClose): break
        // The peer has shut down its side, and still reads.
        case (.connectionEnded, .awaitingRequest) where !isDrained: enter(.closing)
        case (.connectionEnded, _): close()
        // A stream accepts nothing further.
        case (.bytesTransferred, .streaming): break
        case (.bytesTransferred, .awaitingRequest), (.bytesTransferred, .receiving):
            input += bytes
            parseInput()
        }
    }

    /// Whether the input may contain a complete request.
    private var mayHaveCompleteRequest: Bool { phase == .awaitingRequest && searchedBytes < input.count }

    private func parseInput() {
        if phase == .receiving { return readBody() }
        guard mayHaveCompleteRequest, isDrained else { return }
        switch RequestHead.parse(input, searched: searchedBytes, limit: rules.headBytes) {
        case .incomplete: searchedBytes = input.count
        case .rejected(let status): respondAndClose(rules.rejectionResponse(status))
        case .complete(let head, let length):
            input.removeFirst(length)
            searchedBytes = 0
            self.head = head
            guard head.bodyLength != .none else { return handOverRequest(body: []) }
            if let refusal = rules.refusalBeforeBody(self, head) { return respondAndClose(refusal) }
            beginBody(head)
        }
        updateInterest()
    }

    /// Sends a response, and ends the connection, whose further input cannot be read.
    private func respondAndClose(_ response: WebResponse) {
        input = []
        write(response.encoded(isHead: head?.isHEADMethod ?? false, keepsAlive: false))
        enter(.closing)
        flush()
    }

    private func beginBody(_ head: RequestHead) {
        body = []
        switch head.bodyLength {
        case .none: return
        case .bytes(let count):
            guard count <= rules.bodyBytes else { return respondAndClose(rules.rejectionResponse(413)) }
            chunks = nil
        case .chunked: chunks = ChunkedBody(maximumBytes: rules.bodyBytes)
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
            case .complete?: handOverRequest(body: chunks?.decodedBytes ?? [])
            case .rejected(let status)?: respondAndClose(rules.rejectionResponse(status))
            case .incomplete?, nil: restartBodyTimer()
            }
            return
        }
        guard case .bytes(let count)? = head?.bodyLength else { return }
        let part = input.prefix(count - body.count)
        body += part
        input.removeFirst(part.count)
        if body.count == count { handOverRequest(body: body) } else { restartBodyTimer() }
    }

    private func restartBodyTimer() {
        let time = bodyDeadline.since(loop.now)
        if time <= .zero { close() } else { setTimer(min(Self.bodyPause, time)) }
    }

    /// Hands a complete request to the owner.
    private func handOverRequest(body: [UInt8]) {
        guard let head else { return }
        self.body = []
        chunks = nil
        enter(.answering)
        rules.onRequest(self, head, body)
        updateInterest()
    }

    private func enter(_ next: Phase) {
        phase = next
        phaseChangeTime = loop.now
        switch next {
        case .awaitingRequest: setTimer(Self.requestTime)
        case .receiving: setTimer(Self.bodyPause)
        case .closing: setTimer(rules.writeTime)
        case .awaitingPeerClose: setTimer(Self.lingerTime)
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
                    unsafe bytes[writtenPieceBytes...].withUnsafeBytes { unsafe UnixSocket.send(descriptor, $0) }
                case .file(let file, let offset, let count):
                    UnixSocket.sendFile(
                        descriptor, file: file.descriptor, fromOffset: offset + writtenPieceBytes,
                        byteCount: min(count - writtenPieceBytes, budget))
                }
            switch transfer {
            case .bytesTransferred(let count):
                writtenPieceBytes += count
                budget -= count
                if writtenPieceBytes == piece.count {
                    output.removeFirst()
                    writtenPieceBytes = 0
                }
            case .wouldBlock:
                // A timer that runs began when the peer last accepted bytes.
                if phaseTimer == nil || budget < Self.writeBytes { setTimer(rules.writeTime) }
                return updateInterest()
            case .connectionEnded: return close()
            }
        }
        guard phase != .closed, output.isEmpty else { return updateInterest() }
        switch phase {
        case .closing:
            UnixSocket.endOutput(descriptor)
            enter(.awaitingPeerClose)
        case .streaming, .answering: cancelTimer()
        case .awaitingRequest: setTimer(Self.requestTime)
        case .receiving, .awaitingPeerClose, .closed: break
        }
        updateInterest()
        if hadOutput { onDrained() }
    }

    private func updateInterest() {
        guard let registration, phase != .closed else { return }
        var interest: EventLoop.Interest = []
        switch phase {
        // Other input stays in the kernel, so a peer cannot fill the memory.
        case .awaitingRequest: if !mayHaveCompleteRequest { interest.insert(.readable) }
        case .receiving, .streaming, .awaitingPeerClose: interest.insert(.readable)
        case .answering: if rules.abandonsHalfClosedPeer { interest.insert(.peerClosedOutput) }
        case .closing, .closed: break
        }
        // A connection that can be written wakes the loop at once, for the next request.
        if !output.isEmpty || mayHaveCompleteRequest { interest.insert(.writable) }
        guard interest != self.interest else { return }
        self.interest = interest
        do throws(SystemError) { try loop.changeInterest(of: registration, to: interest) } catch { close() }
    }

    private func cancelTimer() {
        if let phaseTimer { loop.cancelTimer(phaseTimer) }
        phaseTimer = nil
    }

    private func setTimer(_ time: Duration) {
        cancelTimer()
        guard phase != .closed else { return }
        phaseTimer = loop.setTimer(after: time) { [weak self] in
            self?.phaseTimer = nil
            self?.close()
        }
    }
}

/// A file that is open for reading, closed with the last reference.
final class OpenFile {
    let descriptor: Int32

    /// Opens a file without following a link; nil if that fails.
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
