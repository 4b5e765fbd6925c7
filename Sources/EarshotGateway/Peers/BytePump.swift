internal import EarshotLoop

/// Copies bytes between a TCP connection and the Unix socket of libzmq that encrypts it, each way only as fast as the
/// reader takes them.
///
/// So the gateway bounds each connection by itself: how many there are, when they are read, and when they end.
final class BytePump {
    /// Bytes read in one call, and the most that one direction holds.
    static let chunkBytes = 65_536
    /// Calls in one pass for each direction, so that other connections have their turns.
    private static let callsPerPass = 8

    /// One end of the pump.
    private final class End {
        let descriptor: Int32
        var registration: EventLoop.Registration?
        var interest: EventLoop.Interest = .readable
        /// Bytes for this end that its socket does not accept yet.
        var heldBytes: ArraySlice<UInt8> = []
        /// Whether this end sends nothing more.
        var isEnded = false
        /// Whether this end accepts nothing more.
        var isReadPaused = false
        /// Bytes received from this end since they were last counted.
        var received = 0

        init(_ descriptor: Int32) { self.descriptor = descriptor }
    }

    /// Called after bytes moved or an end has ended.
    var onProgress: () -> Void = {}
    /// Whether bytes of the client are read.
    var readsRemote = true {
        didSet { if readsRemote != oldValue { if readsRemote { move() } else { watch() } } }
    }
    private let loop: EventLoop
    private let scratch: Scratch
    private let remote: End
    private let innerEnd: End
    private var isClosed = false

    /// Buffer that all pumps of a loop share, because one moves bytes at a time.
    @safe final class Scratch {
        let bytes: UnsafeMutableRawBufferPointer

        init() { unsafe bytes = .allocate(byteCount: BytePump.chunkBytes, alignment: 64) }

        deinit { unsafe bytes.deallocate() }
    }

    /// Takes ownership of both descriptors.
    init(remote: Int32, inner: Int32, _ scratch: Scratch, loop: EventLoop) throws(SystemError) {
        self.loop = loop
        self.scratch = scratch
        self.remote = End(remote)
        self.innerEnd = End(inner)
        self.remote.registration = try loop.add(remote, .readable) { [unowned self] readiness in
            handleReadiness(readiness, self.remote)
        }
        self.innerEnd.registration = try loop.add(inner, .readable) { [unowned self] readiness in
            handleReadiness(readiness, self.innerEnd)
        }
    }

    deinit { close() }

    /// Whether the client has closed the connection, and all of its bytes were passed on.
    var isRemoteEnded: Bool { isClosed || remote.isEnded && (innerEnd.heldBytes.isEmpty || innerEnd.isReadPaused) }

    /// Whether libzmq has ended the connection, and all of its bytes were passed on.
    var isInnerEnded: Bool { isClosed || innerEnd.isEnded && (remote.heldBytes.isEmpty || remote.isReadPaused) }

    /// Returns the bytes passed to libzmq since the last call.
    func takeFed() -> Int {
        defer { remote.received = 0 }
        return remote.received
    }

    /// Returns the bytes received from libzmq since the last call.
    func takeDrained() -> Int {
        defer { innerEnd.received = 0 }
        return innerEnd.received
    }

    /// Closes both ends at once.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        for end in [remote, innerEnd] {
            if let registration = end.registration { loop.remove(registration) }
            UnixSocket.close(end.descriptor)
        }
        remote.heldBytes = []
        innerEnd.heldBytes = []
    }

    private func handleReadiness(_ readiness: EventLoop.Readiness, _ end: End) {
        if readiness.contains(.hangUp) || readiness.contains(.error) {
            // The kernel would report it without end. Unread bytes are read as the other end accepts them.
            if let registration = end.registration { loop.remove(registration) }
            end.registration = nil
            end.isReadPaused = true
            end.heldBytes = []
        }
        move()
    }

    /// Moves bytes both ways as far as both ends permit.
    private func move() {
        guard !isClosed else { return }
        var hasMoved = move(from: innerEnd, to: remote)
        if readsRemote || remote.isReadPaused { hasMoved = move(from: remote, to: innerEnd) || hasMoved }
        watch()
        if hasMoved { onProgress() }
    }

    /// - Returns: whether anything has changed.
    private func move(from source: End, to target: End) -> Bool {
        var hasMoved = flush(target)
        // No event follows from an end without a registration. The kernel's buffers bound its bytes.
        let calls = source.registration == nil ? Int.max : Self.callsPerPass
        for _ in 0..<calls {
            guard target.heldBytes.isEmpty, !source.isEnded else { break }
            let transfer = unsafe UnixSocket.receive(source.descriptor, into: scratch.bytes)
            switch transfer {
            case .wouldBlock: return hasMoved
            case .ended:
                source.isEnded = true
                endOutput(of: target)
                return true
            case .bytes(let received):
                hasMoved = true
                source.received += received
                send(received, to: target)
                if received < Self.chunkBytes, source.registration != nil { return true }
            }
        }
        if source.isEnded { endOutput(of: target) }
        return hasMoved
    }

    /// Sends the first bytes of the shared buffer, and holds the rest.
    private func send(_ count: Int, to target: End) {
        guard !target.isReadPaused else { return }
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: scratch.bytes[..<count])
        switch unsafe UnixSocket.send(target.descriptor, bytes) {
        case .bytes(let sent) where sent == count: break
        case .bytes(let sent): target.heldBytes = unsafe ArraySlice([UInt8](bytes[sent...]))
        case .wouldBlock: target.heldBytes = unsafe ArraySlice([UInt8](bytes))
        case .ended: target.isReadPaused = true
        }
    }

    /// - Returns: whether bytes were sent.
    private func flush(_ target: End) -> Bool {
        var hasMoved = false
        while !target.heldBytes.isEmpty {
            let transfer = unsafe target.heldBytes.withUnsafeBytes {
                unsafe UnixSocket.send(target.descriptor, $0)
            }
            switch transfer {
            case .bytes(let sent):
                hasMoved = true
                target.heldBytes.removeFirst(sent)
            case .wouldBlock: return hasMoved
            case .ended:
                target.isReadPaused = true
                target.heldBytes = []
            }
        }
        return hasMoved
    }

    private func endOutput(of target: End) {
        guard target.heldBytes.isEmpty, !target.isReadPaused else { return }
        UnixSocket.endOutput(target.descriptor)
        target.isReadPaused = true
    }

    private func watch() {
        guard !isClosed else { return }
        watch(remote, reads: readsRemote && innerEnd.heldBytes.isEmpty)
        watch(innerEnd, reads: remote.heldBytes.isEmpty)
    }

    private func watch(_ end: End, reads: Bool) {
        guard let registration = end.registration else { return }
        var interest: EventLoop.Interest = reads && !end.isEnded ? .readable : []
        if !end.heldBytes.isEmpty { interest.insert(.writable) }
        guard interest != end.interest else { return }
        end.interest = interest
        do throws(SystemError) { try loop.change(registration, to: interest) } catch {
            // Fails only without memory. Nothing moves any more, so the heartbeat ends the connection.
            end.isReadPaused = true
        }
    }
}
