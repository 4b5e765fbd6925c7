public import EarshotLoop

/// One end of a ZMTP connection over a Unix socket, driven by an event loop: messages of one or two frames in both
/// directions.
///
/// ```
/// greeting -> handshake -> open -> ended
/// ```
///
/// Speaks version 3.0 with the mechanism NULL, and so interoperates with every libzmq since 4.0. The peer is untrusted.
/// Input is interpreted only once a frame is complete, and a protocol violation ends only this connection.
public final class MessageStream {
    private enum Phase {
        case greeting
        case handshake
        case open
        case ended
    }

    /// Minimum missing part of a frame that is read directly into the frame, in bytes. Shorter rests are read through
    /// the input buffer.
    private static let minimumDirectReadBytes = 16_384
    /// Maximum number of bytes read per call of ``next()``.
    private static let maximumBytesPerCall = 4 << 20

    /// The connection's socket, closed with this object.
    public let descriptor: Int32
    /// Socket type of the peer; nil before the handshake.
    public private(set) var peerType: SocketType?
    /// Protocol violation for which this end closed the connection; nil without one.
    public private(set) var violation: String?
    /// Whether the peer has closed the connection. Its last messages may still be unread.
    public private(set) var isHungUp = false

    private let type: SocketType
    private let maximumFrameBytes: Int
    private let maximumUnsentMessages: Int
    private let memory: ConnectionMemory
    private let owner: ConnectionMemory.Owner
    private let loop: EventLoop
    private let onReady: () -> Void
    private var registration: EventLoop.Registration?
    private var phase = Phase.greeting
    private var inputBuffer = InputBuffer()
    /// Incomplete incoming frame.
    private(set) var partialFrame: PartialFrame?
    /// Bytes still to be discarded of a surplus frame.
    private var surplusBytes: UInt64 = 0
    private var currentMessage = Message(head: [])
    /// Number of received frames of the current message.
    private var receivedFrames = 0
    private var outputQueue = OutputQueue()
    /// Whether the kernel may have input.
    private var isReadable = true
    /// Whether a complete message may be available. False after ``next()`` needed more input than there was.
    private var mayHaveMessage = true
    private var awaitsWritability = false
    /// Whether the output contains a PONG that ``flush()`` has not tried to write.
    private var hasUnwrittenPong = false
    /// Reply to the newest PING that arrived while the kernel accepted no output.
    private var deferredPong: [UInt8]?
    /// Bytes reserved for the current message.
    private var reservedBytes = 0
    /// Whether they include the next frame.
    private var isNextFrameReserved = false
    /// Whether the next frame waits for memory. Nothing is read meanwhile.
    private(set) var awaitsMemory = false
    /// Time of the last reservation; nil without reserved bytes.
    public private(set) var reservedAt: LoopTime?

    /// Takes ownership of `descriptor`, a connected non-blocking socket, and queues the greeting.
    ///
    /// - Parameters:
    ///   - frameBytes: Maximum length of a frame in bytes; a longer one ends the connection.
    ///   - maximumMessages: Maximum number of unsent messages.
    ///   - memory: Memory account shared by several connections.
    ///   - owner: Process and user of the peer, for sharing `memory` fairly.
    ///   - onReady: Called from the loop when input may be available or the peer has closed the connection. Call
    ///     ``next()`` later in that pass.
    public init(
        _ descriptor: Int32, as type: SocketType, frameBytes: Int, maximumMessages: Int,
        memory: ConnectionMemory = ConnectionMemory(),
        owner: ConnectionMemory.Owner = .init(process: 0, user: nil), loop: EventLoop, onReady: @escaping () -> Void
    ) throws(SystemError) {
        self.descriptor = descriptor
        self.type = type
        self.maximumFrameBytes = frameBytes
        self.maximumUnsentMessages = maximumMessages
        self.memory = memory
        self.owner = owner
        self.loop = loop
        self.onReady = onReady
        outputQueue.appendRawBytes(Handshake.greetingAndReady(as: type))
        reportUnsentBytes()
        registration = try loop.add(descriptor, .readable) { [unowned self] readiness in handleReadiness(readiness) }
    }

    deinit {
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
        outputQueue.removeAll()
        reportUnsentBytes()
        if awaitsMemory || reservedBytes > 0 { releaseReservation() }
    }

    /// Whether messages can be sent, which is the case after the handshake.
    public var isOpen: Bool { phase == .open }

    /// Whether the connection has ended and nothing more will arrive.
    public var isEnded: Bool { phase == .ended }

    /// Whether ``next()`` may return a message without a new event from the loop.
    public var mayHavePendingMessage: Bool { phase != .ended && mayHaveMessage }

    /// Whether input is read. While false, the peer can write until the kernel's buffer is full.
    public var isReading = true {
        didSet { if isReading != oldValue { updateInterest() } }
    }

    // MARK: Receiving

    /// Returns the next message; nil if none is complete or the connection has ended.
    public func next() -> Message? {
        var turn = Turn(items: .max, bytes: Self.maximumBytesPerCall)
        return next(&turn)
    }

    /// Returns the next message; nil if none is complete, the connection has ended, or the turn is over.
    ///
    /// PINGs before the message, or before the end of the input, are answered in one write.
    public func next(_ turn: inout Turn) -> Message? {
        defer { if hasUnwrittenPong { flush() } }
        while !turn.isOver {
            if let message = takeMessageFromInput(&turn) { return message }
            guard !turn.isOver else { break }
            guard phase != .ended, isReading, isReadable, !awaitsMemory else {
                mayHaveMessage = isReadable && !awaitsMemory
                break
            }
            read(&turn)
        }
        inputBuffer.release(to: memory.spareBuffer)
        return nil
    }

    private func handleReadiness(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.writable) { flush() }
        if readiness.contains(.hangUp) || readiness.contains(.error) { handleHangUp() }
        isReadable = true
        mayHaveMessage = true
        onReady()
    }

    /// Handles the peer's hang-up. Output is dropped, and the loop need not report it again.
    private func handleHangUp() {
        isHungUp = true
        outputQueue.removeAll()
        reportUnsentBytes()
        if awaitsMemory, let registration {
            loop.remove(registration)
            self.registration = nil
        }
    }

    private func read(_ turn: inout Turn) {
        let (outcome, isFull) = readFrame(turn.remainingBytes) ?? inputBuffer.read(descriptor, memory.spareBuffer)
        if case .bytesTransferred(let count) = outcome { turn.spendBytes(count) }
        updateReadability(outcome, isFull: isFull)
    }

    /// Reads directly into an incomplete frame if enough of it is missing; nil otherwise.
    private func readFrame(_ maximumBytes: Int) -> (UnixSocket.TransferResult, isFull: Bool)? {
        guard inputBuffer.count == 0, let filled = partialFrame?.filledBytes, let room = partialFrame?.bytes.count,
            room - filled >= Self.minimumDirectReadBytes, var frame = partialFrame.take()
        else { return nil }
        let end = min(room, filled + max(maximumBytes, Self.minimumDirectReadBytes))
        let outcome = unsafe frame.bytes.withUnsafeMutableBytes {
            unsafe UnixSocket.receive(descriptor, into: UnsafeMutableRawBufferPointer(rebasing: $0[filled..<end]))
        }
        if case .bytesTransferred(let count) = outcome { frame.filledBytes += count }
        partialFrame = frame
        return (outcome, outcome == .bytesTransferred(end - filled))
    }

    private func updateReadability(_ outcome: UnixSocket.TransferResult, isFull: Bool) {
        switch outcome {
        // A short read means that the kernel's buffer is empty. The loop reports later input.
        case .bytesTransferred: isReadable = isFull || isHungUp
        case .wouldBlock: isReadable = false
        case .connectionEnded: end()
        }
    }

    /// Takes frames from the input buffer until a message is complete. Returns nil if more input is needed or the turn
    /// is over.
    private func takeMessageFromInput(_ turn: inout Turn) -> Message? {
        if phase == .greeting {
            guard inputBuffer.count >= Handshake.greetingBytes else { return nil }
            if let obstacle = Handshake.violation(in: inputBuffer.takeBytes(Handshake.greetingBytes)) {
                endForViolation(obstacle)
                return nil
            }
            phase = .handshake
        }
        while phase != .ended, !turn.isOver {
            guard let (header, bytes) = takeFrame(&turn) else { return nil }
            if header.isCommand {
                turn.processedItem()
                handleCommand(bytes)
            } else if phase == .handshake {
                endForViolation("a peer sent a message before READY")
            } else if let message = addFrame(bytes, hasMore: header.hasMore) {
                turn.processedItem()
                return message
            }
        }
        return nil
    }

    /// Returns the next complete frame; nil if more input is needed or the turn is over.
    private func takeFrame(_ turn: inout Turn) -> (Frame.Header, [UInt8])? {
        guard !awaitsMemory else { return nil }
        if var frame = partialFrame.take() {
            repeat {
                frame.makeRoom()
                frame.filledBytes += inputBuffer.moveBytes(into: &frame.bytes, at: frame.filledBytes)
            } while inputBuffer.count > 0 && !frame.isWhole
            guard frame.isWhole else {
                frame.makeRoom()
                partialFrame = frame
                return nil
            }
            return (frame.header, frame.bytes)
        }
        while !turn.isOver {
            if surplusBytes > 0 {
                let count = Int(min(surplusBytes, UInt64(inputBuffer.count)))
                inputBuffer.discard(count)
                surplusBytes -= UInt64(count)
                guard surplusBytes == 0 else { return nil }
            }
            let header: Frame.Header
            let isWhole: Bool
            switch inputBuffer.nextFrame {
            case .incomplete: return nil
            case .invalidFlags:
                endForViolation("a peer sent a frame with unknown flags")
                return nil
            case .frame(let next, let isThere): (header, isWhole) = (next, isThere)
            }
            let most = header.isCommand ? Handshake.maximumCommandBytes : maximumFrameBytes
            guard header.count <= UInt64(most) else {
                endForViolation("a peer sent a frame of \(header.count) bytes; \(most) are the most")
                return nil
            }
            let count = Int(header.count)
            if !header.isCommand, receivedFrames >= 2, phase == .open {
                // Surplus frames are discarded, so that an endless message needs no memory.
                inputBuffer.discard(header.headerBytes)
                surplusBytes = header.count
                currentMessage.hadSurplusFrames = true
                guard header.hasMore else { return (header, []) }
                turn.processedItem()
                continue
            }
            guard isWhole || reserveMemory(for: count) else { return nil }
            isNextFrameReserved = false
            if isWhole { return (header, inputBuffer.takeBytes(count, discarding: header.headerBytes)) }
            inputBuffer.discard(header.headerBytes)
            var frame = PartialFrame(header, count: count)
            frame.filledBytes = inputBuffer.moveBytes(into: &frame.bytes, at: 0)
            partialFrame = frame
            return nil
        }
        return nil
    }

    /// Adds a frame to the current message. Returns the message after its last frame.
    private func addFrame(_ bytes: [UInt8], hasMore: Bool) -> Message? {
        switch receivedFrames {
        case 0:
            currentMessage.head = bytes
            receivedFrames = 1
        case 1:
            currentMessage.body = bytes
            receivedFrames = 2
        default: break
        }
        guard !hasMore else { return nil }
        if reservedBytes > 0 { releaseReservation() }
        let whole = currentMessage
        currentMessage = Message(head: [])
        receivedFrames = 0
        return whole
    }

    // MARK: Memory of incoming frames

    /// Returns whether an incomplete frame may be stored. Otherwise the stream waits for memory.
    private func reserveMemory(for count: Int) -> Bool {
        guard count > ConnectionMemory.unreservedFrameBytes, !isNextFrameReserved else { return true }
        guard memory.reserve(count, for: self, of: owner) else {
            awaitsMemory = true
            updateInterest()
            return false
        }
        reservedBytes += count
        reservedAt = loop.now
        return true
    }

    /// Grants the memory that the next frame waits for.
    func memoryGranted(_ bytes: Int) {
        reservedBytes += bytes
        reservedAt = loop.now
        isNextFrameReserved = true
        awaitsMemory = false
        isReadable = true
        mayHaveMessage = true
        updateInterest()
        onReady()
    }

    private func releaseReservation() {
        let bytes = reservedBytes
        (reservedBytes, reservedAt) = (0, nil)
        (isNextFrameReserved, awaitsMemory) = (false, false)
        memory.release(bytes, of: owner)
    }

    // MARK: Commands

    private func handleCommand(_ bytes: [UInt8]) {
        guard let (name, rest) = Handshake.splitCommand(bytes) else {
            return endForViolation("a peer sent a command without a name")
        }
        switch (name, phase) {
        case ("READY", .handshake):
            guard let ready = Handshake.parseReady(rest), let other = ready.socketType, type.acceptsPeer(other) else {
                return endForViolation("a peer's socket is of no type that a \(type.rawValue) talks to")
            }
            peerType = other
            phase = .open
        case ("ERROR", _): end()
        case ("PING", .open):
            guard let pong = Handshake.pong(to: rest) else { return endForViolation("a peer sent a PING that is none") }
            // A peer that sends PINGs without reading gets one PONG, once it reads.
            if awaitsWritability {
                deferredPong = pong
            } else {
                outputQueue.appendRawBytes(pong)
                hasUnwrittenPong = true
            }
        default:
            // Commands of later versions are ignored, because this end announces 3.0.
            if phase != .open { endForViolation("a peer sent another command than READY") }
        }
    }

    // MARK: Sending

    /// Queues a message; ``flush()`` writes it.
    ///
    /// - Parameter isReply: Whether it replies to a message of the peer, and is counted as a reply.
    /// - Returns: false if the queue is full or the connection is not open. libzmq closes a connection if a message
    ///   arrives before it has sent its own READY.
    public func send(_ message: Message, isReply: Bool = false) -> Bool {
        guard phase == .open, outputQueue.messageCount < maximumUnsentMessages else { return false }
        outputQueue.append(message, isReply: isReply)
        reportUnsentBytes()
        return true
    }

    /// Queues a message whose second frame is a part of a file. If the file is truncated before it is sent, the
    /// connection ends.
    ///
    /// - Returns: As ``send(_:isReply:)``.
    public func send(_ head: [UInt8], _ file: FilePart) -> Bool {
        guard phase == .open, outputQueue.messageCount < maximumUnsentMessages else { return false }
        outputQueue.append(head, file: file)
        reportUnsentBytes()
        return true
    }

    /// Number of unsent messages.
    public var unsentMessages: Int { outputQueue.messageCount }

    /// Number of unsent bytes.
    public var unsentBytes: Int { outputQueue.unsentBytes }

    /// Number of unsent replies.
    public var unsentReplies: Int { outputQueue.replyCount }

    /// Bytes of replies in pieces of output that are not completely sent.
    public var unsentReplyBytes: Int { outputQueue.replyBytes }

    /// Whether no output is queued.
    public var isIdle: Bool { outputQueue.isEmpty }

    /// Writes queued output as far as the kernel accepts it. The loop continues when the socket becomes writable.
    public func flush() {
        hasUnwrittenPong = false
        defer { reportUnsentBytes() }
        guard phase != .ended, !outputQueue.isEmpty else { return }
        switch outputQueue.write(to: descriptor) {
        case .bytesTransferred:
            setAwaitsWritability(false)
            guard let pong = deferredPong.take() else { return }
            outputQueue.appendRawBytes(pong)
            flush()
        case .wouldBlock: setAwaitsWritability(true)
        case .connectionEnded:
            // The peer's last messages may still be readable.
            isHungUp = true
            outputQueue.removeAll()
            setAwaitsWritability(false)
        }
    }

    /// Updates the shared account with this connection's output.
    private func reportUnsentBytes() {
        let (bytes, replyBytes) = outputQueue.takeByteChanges()
        if bytes != 0 || replyBytes != 0 { memory.unsentChanged(by: bytes, replies: replyBytes) }
    }

    /// Writes queued output for at most `milliseconds`, blocking the caller. The socket is closed with this object.
    public func linger(milliseconds: Int32) {
        flush()
        guard phase != .ended, !outputQueue.isEmpty else { return }
        let end = LoopTime.readClock().advanced(by: .milliseconds(Int64(milliseconds)))
        while phase != .ended, !outputQueue.isEmpty {
            let rest = end.since(LoopTime.readClock())
            guard rest > .zero else { return }
            UnixSocket.waitUntilWritable(descriptor, milliseconds: Int32(rest / .milliseconds(1)) + 1)
            flush()
        }
    }

    private func setAwaitsWritability(_ isWaiting: Bool) {
        guard isWaiting != awaitsWritability else { return }
        awaitsWritability = isWaiting
        updateInterest()
    }

    private func updateInterest() {
        guard let registration else { return }
        var interest: EventLoop.Interest = isReading && !awaitsMemory ? .readable : []
        if awaitsWritability { interest.insert(.writable) }
        // Changing the interest of a registered descriptor fails only without memory.
        do throws(SystemError) { try loop.changeInterest(of: registration, to: interest) } catch { end() }
    }

    // MARK: The end

    private func endForViolation(_ reason: String) {
        violation = reason
        end()
    }

    private func end() {
        guard phase != .ended else { return }
        phase = .ended
        isHungUp = true
        if let registration { loop.remove(registration) }
        registration = nil
        UnixSocket.shutDown(descriptor)
        outputQueue.removeAll()
        reportUnsentBytes()
        partialFrame = nil
        currentMessage = Message(head: [])
        if awaitsMemory || reservedBytes > 0 { releaseReservation() }
    }
}
