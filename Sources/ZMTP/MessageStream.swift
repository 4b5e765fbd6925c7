public import EarshotLoop

/// One end of a ZMTP connection over a Unix socket, in a loop: messages of one or two frames, both ways.
///
/// `greeting -> handshake -> open -> ended`. It speaks version 3.0 with the mechanism NULL, and so to every libzmq
/// since 4.0. Whoever is at the other end, nothing that comes is more than looked at until it is whole, and nothing
/// that is not as it should be ends more than this connection.
public final class MessageStream {
    private enum Phase {
        case greeting
        case handshake
        case open
        case ended
    }

    /// Bytes still to come of a frame that are read to where they are to be: fewer are read with what follows them.
    private static let directBytes = 16_384
    /// Bytes read in one call of ``next()``.
    private static let bytesPerCall = 4 << 20

    /// Its own socket, which it closes.
    public let descriptor: Int32
    /// What the other end is; nil before it has said so.
    public private(set) var peerType: SocketType?
    /// Why this end ended it; nil when the other end did, or nobody.
    public private(set) var violation: String?
    /// Whether the other end is gone. What it sent may wait all the same.
    public private(set) var isHungUp = false

    private let type: SocketType
    private let frameBytes: Int
    private let mostMessages: Int
    private let memory: ConnectionMemory
    private let owner: Int32
    private let loop: EventLoop
    private let onReady: () -> Void
    private var registration: EventLoop.Registration?
    private var phase = Phase.greeting
    private var input = InputBuffer()
    /// The frame that has not come whole.
    private(set) var partial: PartialFrame?
    /// Bytes still to come of a frame that is passed over.
    private var surplus: UInt64 = 0
    private var message = Message(head: [])
    /// Frames of the message that have come, the envelope not counted.
    private var frames = 0
    private var output = OutputQueue()
    /// Whether the kernel may have something to read.
    private var isReadable = true
    /// Whether a whole message may be there: no longer once ``next()`` found that the rest of one has yet to come.
    private var mayHaveMore = true
    private var isWaitingForRoom = false
    /// Whether the output has a PONG that no call of ``flush()`` has tried to write.
    private var hasNewPong = false
    /// The answer to the newest of the PINGs that came while the kernel took no output.
    private var latePong: [UInt8]?
    /// Bytes reserved for the message that is coming.
    private var reservedBytes = 0
    /// Whether they include the frame that comes next.
    private var isNextReserved = false
    /// Whether the frame that comes next is too long for the memory that is left: nothing is read meanwhile.
    private(set) var awaitsRoom = false
    /// When the last of ``reservedBytes`` were reserved; nil without any.
    public private(set) var reservedAt: LoopTime?

    /// Takes `descriptor` over, a connected socket that does not wait, and says the greeting.
    ///
    /// - Parameters:
    ///   - frameBytes: bytes of a frame at most; a longer one ends the connection.
    ///   - mostMessages: messages that may wait to be written.
    ///   - memory: counts what this connection and others hold.
    ///   - owner: process at the other end, by which `memory` shares room out.
    ///   - onReady: called from the loop when something may have come, or the other end is gone: ask ``next()`` later
    ///     in that pass.
    public init(
        _ descriptor: Int32, as type: SocketType, frameBytes: Int, mostMessages: Int,
        memory: ConnectionMemory = ConnectionMemory(), owner: Int32 = 0, loop: EventLoop,
        onReady: @escaping () -> Void
    ) throws(SystemError) {
        self.descriptor = descriptor
        self.type = type
        self.frameBytes = frameBytes
        self.mostMessages = mostMessages
        self.memory = memory
        self.owner = owner
        self.loop = loop
        self.onReady = onReady
        output.append(Handshake.opening(as: type))
        tellMemory()
        registration = try loop.add(descriptor, .readable) { [unowned self] readiness in became(readiness) }
    }

    deinit {
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
        output.removeAll()
        tellMemory()
        if awaitsRoom || reservedBytes > 0 { releaseRoom() }
    }

    /// Whether messages can be sent: both ends have said who they are.
    public var isOpen: Bool { phase == .open }

    /// Whether nothing more will come.
    public var isEnded: Bool { phase == .ended }

    /// Whether ``next()`` is worth a call though the loop tells of nothing.
    public var hasPending: Bool { phase != .ended && mayHaveMore }

    /// Whether what comes is read. When it is not, the other end can write until the kernel's buffer is full.
    public var isReading = true {
        didSet { if isReading != oldValue { watch() } }
    }

    // MARK: Receiving

    /// The next message; nil when no whole one has come, or it has ended.
    public func next() -> Message? {
        var turn = Turn(items: .max, bytes: Self.bytesPerCall)
        return next(&turn)
    }

    /// The next message; nil when no whole one has come, it has ended, or the turn is over.
    ///
    /// PINGs that come before the message, or before the end of the input, are answered in one write.
    public func next(_ turn: inout Turn) -> Message? {
        defer { if hasNewPong { flush() } }
        while !turn.isOver {
            if let message = takeFromInput(&turn) { return message }
            guard !turn.isOver else { break }
            guard phase != .ended, isReading, isReadable, !awaitsRoom else {
                mayHaveMore = isReadable && !awaitsRoom
                break
            }
            read(&turn)
        }
        input.release(to: memory.spare)
        return nil
    }

    private func became(_ readiness: EventLoop.Readiness) {
        if readiness.contains(.writable) { flush() }
        if readiness.contains(.hangUp) || readiness.contains(.error) { hungUp() }
        isReadable = true
        mayHaveMore = true
        onReady()
    }

    /// The other end is gone: nobody reads what waits, and the loop need not tell it again.
    private func hungUp() {
        isHungUp = true
        output.removeAll()
        tellMemory()
        if awaitsRoom, let registration {
            loop.remove(registration)
            self.registration = nil
        }
    }

    private func read(_ turn: inout Turn) {
        let (outcome, isFull) = readFrame(turn.bytes) ?? input.read(descriptor, memory.spare)
        if case .bytes(let count) = outcome { turn.read(count) }
        settle(outcome, isFull: isFull)
    }

    /// Reads on in a frame that has not come whole, where that is worth a call of its own; nil where it is not.
    private func readFrame(_ most: Int) -> (UnixSocket.Transfer, isFull: Bool)? {
        guard input.count == 0, let filled = partial?.filled, let room = partial?.bytes.count,
            room - filled >= Self.directBytes, var frame = partial.take()
        else { return nil }
        let end = min(room, filled + max(most, Self.directBytes))
        let outcome = unsafe frame.bytes.withUnsafeMutableBytes {
            unsafe UnixSocket.receive(descriptor, into: UnsafeMutableRawBufferPointer(rebasing: $0[filled..<end]))
        }
        if case .bytes(let count) = outcome { frame.filled += count }
        partial = frame
        return (outcome, outcome == .bytes(end - filled))
    }

    private func settle(_ outcome: UnixSocket.Transfer, isFull: Bool) {
        switch outcome {
        // Less than there was room for: what comes later is told by the loop.
        case .bytes: isReadable = isFull || isHungUp
        case .wouldBlock: isReadable = false
        case .ended: end()
        }
    }

    /// Takes frames out of what was read, until a message is whole; nil when more must be read or the turn is over.
    private func takeFromInput(_ turn: inout Turn) -> Message? {
        if phase == .greeting {
            guard input.count >= Handshake.greetingBytes else { return nil }
            if let obstacle = Handshake.obstacle(in: input.take(Handshake.greetingBytes)) {
                refuse(obstacle)
                return nil
            }
            phase = .handshake
        }
        while phase != .ended, !turn.isOver {
            guard let (header, bytes) = takeFrame(&turn) else { return nil }
            if header.isCommand {
                turn.processedItem()
                obey(bytes)
            } else if phase == .handshake {
                refuse("a peer sent a message before READY")
            } else if let message = add(bytes, hasMore: header.hasMore) {
                turn.processedItem()
                return message
            }
        }
        return nil
    }

    /// The next frame that is whole; nil when more must be read or the turn is over.
    private func takeFrame(_ turn: inout Turn) -> (Frame.Header, [UInt8])? {
        guard !awaitsRoom else { return nil }
        if var frame = partial.take() {
            repeat {
                frame.makeRoom()
                frame.filled += input.move(into: &frame.bytes, at: frame.filled)
            } while input.count > 0 && !frame.isWhole
            guard frame.isWhole else {
                frame.makeRoom()
                partial = frame
                return nil
            }
            return (frame.header, frame.bytes)
        }
        while !turn.isOver {
            if surplus > 0 {
                let count = Int(min(surplus, UInt64(input.count)))
                input.drop(count)
                surplus -= UInt64(count)
                guard surplus == 0 else { return nil }
            }
            let header: Frame.Header
            let isWhole: Bool
            switch input.next {
            case .incomplete: return nil
            case .unknown:
                refuse("a peer sent a frame with unknown flags")
                return nil
            case .frame(let next, let isThere): (header, isWhole) = (next, isThere)
            }
            let most = header.isCommand ? Handshake.commandBytes : frameBytes
            guard header.count <= UInt64(most) else {
                refuse("a peer sent a frame of \(header.count) bytes; \(most) are the most")
                return nil
            }
            let count = Int(header.count)
            if !header.isCommand, frames >= 2, phase == .open {
                // Not kept, so that a message without end costs nothing.
                input.drop(header.headerBytes)
                surplus = header.count
                message.isLonger = true
                guard header.hasMore else { return (header, []) }
                turn.processedItem()
                continue
            }
            guard isWhole || reservesRoom(for: count) else { return nil }
            isNextReserved = false
            if isWhole { return (header, input.take(count, behind: header.headerBytes)) }
            input.drop(header.headerBytes)
            var frame = PartialFrame(header, count: count)
            frame.filled = input.move(into: &frame.bytes, at: 0)
            partial = frame
            return nil
        }
        return nil
    }

    /// Adds a frame to the message that is coming; the message when it was its last.
    private func add(_ bytes: [UInt8], hasMore: Bool) -> Message? {
        switch frames {
        case 0 where bytes.isEmpty && hasMore && !message.hasEnvelope: message.hasEnvelope = true
        case 0:
            message.head = bytes
            frames = 1
        case 1:
            message.body = bytes
            frames = 2
        default: break
        }
        guard !hasMore else { return nil }
        if reservedBytes > 0 { releaseRoom() }
        let whole = message
        message = Message(head: [])
        frames = 0
        return whole
    }

    // MARK: Memory of incoming frames

    /// Whether a frame that has not come whole can be kept; else it is waited for.
    private func reservesRoom(for count: Int) -> Bool {
        guard count > ConnectionMemory.freeBytes, !isNextReserved else { return true }
        guard memory.reserve(count, for: self, of: owner) else {
            awaitsRoom = true
            watch()
            return false
        }
        reservedBytes += count
        reservedAt = loop.now
        return true
    }

    /// There is room now for the frame that was waited for.
    func roomGranted(_ bytes: Int) {
        reservedBytes += bytes
        reservedAt = loop.now
        isNextReserved = true
        awaitsRoom = false
        isReadable = true
        mayHaveMore = true
        watch()
        onReady()
    }

    private func releaseRoom() {
        let bytes = reservedBytes
        (reservedBytes, reservedAt) = (0, nil)
        (isNextReserved, awaitsRoom) = (false, false)
        memory.release(bytes, of: owner)
    }

    // MARK: Commands

    private func obey(_ bytes: [UInt8]) {
        guard let (name, rest) = Handshake.command(bytes) else { return refuse("a peer sent a command without a name") }
        switch (name, phase) {
        case ("READY", .handshake):
            guard let ready = Handshake.ready(rest), let other = ready.socketType, type.takes(other) else {
                return refuse("a peer's socket is of no type that a \(type.rawValue) talks to")
            }
            peerType = other
            phase = .open
        case ("ERROR", _): end()
        case ("PING", .open):
            guard let pong = Handshake.pong(to: rest) else { return refuse("a peer sent a PING that is none") }
            // A peer that pings and does not read gets one answer, once it reads.
            if isWaitingForRoom {
                latePong = pong
            } else {
                output.append(pong)
                hasNewPong = true
            }
        default:
            // Those of later versions mean nothing to one that says it speaks 3.0.
            if phase != .open { refuse("a peer sent another command than READY") }
        }
    }

    // MARK: Sending

    /// Puts a message behind those that wait to be written; ``flush()`` writes them.
    ///
    /// - Parameter isReply: whether it answers a message of the other end, and is counted as that.
    /// - Returns: false when as many wait as may, or it is not open: libzmq ends a connection on which a message comes
    ///   before it has sent its own READY.
    public func send(_ message: Message, isReply: Bool = false) -> Bool {
        guard phase == .open, output.messages < mostMessages else { return false }
        output.append(message, isReply: isReply)
        tellMemory()
        return true
    }

    /// Messages that wait to be written.
    public var unsentMessages: Int { output.messages }

    /// Bytes that wait to be written.
    public var unsentBytes: Int { output.bytes }

    /// Replies that wait to be written.
    public var unsentReplies: Int { output.replies }

    /// Bytes of replies that wait to be written, in pieces that the kernel has not taken whole.
    public var unsentReplyBytes: Int { output.replyBytes }

    /// Whether nothing waits to be written.
    public var isIdle: Bool { output.isEmpty }

    /// Writes what waits, as far as the kernel takes it; the loop writes the rest when it takes more.
    public func flush() {
        hasNewPong = false
        defer { tellMemory() }
        guard phase != .ended, !output.isEmpty else { return }
        switch output.write(to: descriptor) {
        case .bytes:
            setWaiting(false)
            guard let pong = latePong.take() else { return }
            output.append(pong)
            flush()
        case .wouldBlock: setWaiting(true)
        case .ended:
            // Its last words may still be read.
            output.removeAll()
            setWaiting(false)
        }
    }

    /// Lets the account of all connections follow what waits here.
    private func tellMemory() {
        let (bytes, replyBytes) = output.takeGrowth()
        if bytes != 0 || replyBytes != 0 { memory.unsentChanged(by: bytes, replies: replyBytes) }
    }

    /// Writes what waits for at most so many milliseconds, which the caller has. The socket ends with this object.
    public func linger(milliseconds: Int32) {
        flush()
        guard phase != .ended, !output.isEmpty else { return }
        let end = LoopTime.read().advanced(by: .milliseconds(Int64(milliseconds)))
        while phase != .ended, !output.isEmpty {
            let rest = end.since(LoopTime.read())
            guard rest > .zero else { return }
            UnixSocket.awaitRoom(descriptor, milliseconds: Int32(rest / .milliseconds(1)) + 1)
            flush()
        }
    }

    private func setWaiting(_ isWaiting: Bool) {
        guard isWaiting != isWaitingForRoom else { return }
        isWaitingForRoom = isWaiting
        watch()
    }

    private func watch() {
        guard let registration else { return }
        var interest: EventLoop.Interest = isReading && !awaitsRoom ? .readable : []
        if isWaitingForRoom { interest.insert(.writable) }
        // A descriptor that is watched can be watched otherwise, unless memory is out.
        do throws(SystemError) { try loop.change(registration, to: interest) } catch { end() }
    }

    // MARK: The end

    private func refuse(_ reason: String) {
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
        output.removeAll()
        tellMemory()
        partial = nil
        message = Message(head: [])
        if awaitsRoom || reservedBytes > 0 { releaseRoom() }
    }
}
