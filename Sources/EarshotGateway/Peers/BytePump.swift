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
        var watchedEvents: EventLoop.Interest = .readable
        /// Bytes for this end that its socket does not accept yet.
        var heldBytes: ArraySlice<UInt8> = []
        /// Whether this end sends nothing more.
        var isEnded = false
        /// Whether this end accepts nothing more.
        var isOutputClosed = false
        /// Bytes received from this end since they were last counted.
        var receivedBytes = 0

        init(_ descriptor: Int32) { self.descriptor = descriptor }
    }

    /// Called after bytes moved or an end has ended.
    var onProgress: () -> Void = {}
    /// Whether bytes of the client are read.
    var readsFromRemote = true {
        didSet { if readsFromRemote != oldValue { if readsFromRemote { moveBytes() } else { updateInterests() } } }
    }
    private let loop: EventLoop
    private let scratchBuffer: Scratch
    private let remoteEnd: End
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
        self.scratchBuffer = scratch
        self.remoteEnd = End(remote)
        self.innerEnd = End(inner)
        self.remoteEnd.registration = try loop.add(remote, .readable) { [unowned self] readiness in
            handleReadiness(readiness, self.remoteEnd)
        }
        self.innerEnd.registration = try loop.add(inner, .readable) { [unowned self] readiness in
            handleReadiness(readiness, self.innerEnd)
        }
    }

    deinit { close() }

    /// Whether the client has closed the connection, and all of its bytes were passed on.
    var isRemoteEnded: Bool {
        isClosed || remoteEnd.isEnded && (innerEnd.heldBytes.isEmpty || innerEnd.isOutputClosed)
    }

    /// Whether libzmq has ended the connection, and all of its bytes were passed on.
    var isInnerEnded: Bool {
        isClosed || innerEnd.isEnded && (remoteEnd.heldBytes.isEmpty || remoteEnd.isOutputClosed)
    }

    /// Returns the bytes passed to libzmq since the last call.
    func takeFedBytes() -> Int {
        defer { remoteEnd.receivedBytes = 0 }
        return remoteEnd.receivedBytes
    }

    /// Returns the bytes received from libzmq since the last call.
    func takeDrainedBytes() -> Int {
        defer { innerEnd.receivedBytes = 0 }
        return innerEnd.receivedBytes
    }

    /// Closes both ends at once.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        for end in [remoteEnd, innerEnd] {
            if let registration = end.registration { loop.remove(registration) }
            UnixSocket.close(end.descriptor)
        }
        remoteEnd.heldBytes = []
        innerEnd.heldBytes = []
    }

    private func handleReadiness(_ readiness: EventLoop.Readiness, _ end: End) {
        if readiness.contains(.hangUp) || readiness.contains(.error) {
            // The kernel would report it without end. Unread bytes are read as the other end accepts them.
            if let registration = end.registration { loop.remove(registration) }
            end.registration = nil
            end.isOutputClosed = true
            end.heldBytes = []
        }
        moveBytes()
    }

    /// Moves bytes both ways as far as both ends permit.
    private func moveBytes() {
        guard !isClosed else { return }
        var hasMoved = moveBytes(from: innerEnd, to: remoteEnd)
        if readsFromRemote || remoteEnd.isOutputClosed {
            hasMoved = moveBytes(from: remoteEnd, to: innerEnd) || hasMoved
        }
        updateInterests()
        if hasMoved { onProgress() }
    }

    /// - Returns: whether anything has changed.
    private func moveBytes(from source: End, to target: End) -> Bool {
        var hasMoved = flush(target)
        // No event follows from an end without a registration. The kernel's buffers bound its bytes.
        let calls = source.registration == nil ? Int.max : Self.callsPerPass
        for _ in 0..<calls {
            guard target.heldBytes.isEmpty, !source.isEnded else { break }
            let transfer = unsafe UnixSocket.receive(source.descriptor, into: scratchBuffer.bytes)
            switch transfer {
            case .wouldBlock: return hasMoved
            case .connectionEnded:
                source.isEnded = true
                endOutput(of: target)
                return true
            case .bytesTransferred(let received):
                hasMoved = true
                source.receivedBytes += received
                send(received, to: target)
                if received < Self.chunkBytes, source.registration != nil { return true }
            }
        }
        if source.isEnded { endOutput(of: target) }
        return hasMoved
    }

    /// Sends the first bytes of the shared buffer, and holds the rest.
    private func send(_ count: Int, to target: End) {
        guard !target.isOutputClosed else { return }
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: scratchBuffer.bytes[..<count])
        switch unsafe UnixSocket.send(target.descriptor, bytes) {
        case .bytesTransferred(let sent) where sent == count: break
        case .bytesTransferred(let sent): target.heldBytes = unsafe ArraySlice([UInt8](bytes[sent...]))
        case .wouldBlock: target.heldBytes = unsafe ArraySlice([UInt8](bytes))
        case .connectionEnded: target.isOutputClosed = true
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
            case .bytesTransferred(let sent):
                hasMoved = true
                target.heldBytes.removeFirst(sent)
            case .wouldBlock: return hasMoved
            case .connectionEnded:
                target.isOutputClosed = true
                target.heldBytes = []
            }
        }
        return hasMoved
    }

    private func endOutput(of target: End) {
        guard target.heldBytes.isEmpty, !target.isOutputClosed else { return }
        UnixSocket.endOutput(target.descriptor)
        target.isOutputClosed = true
    }

    private func updateInterests() {
        guard !isClosed else { return }
        watch(remoteEnd, reads: readsFromRemote && innerEnd.heldBytes.isEmpty)
        watch(innerEnd, reads: remoteEnd.heldBytes.isEmpty)
    }

    private func watch(_ end: End, reads: Bool) {
        guard let registration = end.registration else { return }
        var interest: EventLoop.Interest = reads && !end.isEnded ? .readable : []
        if !end.heldBytes.isEmpty { interest.insert(.writable) }
        guard interest != end.watchedEvents else { return }
        end.watchedEvents = interest
        do throws(SystemError) { try loop.changeInterest(of: registration, to: interest) } catch {
            // Fails only without memory. Nothing moves any more, so the heartbeat ends the connection.
            end.isOutputClosed = true
        }
    }
}
