internal import EarshotLoop
internal import EarshotWire
internal import LibCrypto

/// The body of a response while it arrives: decoded, within its limits, stored in memory or a file, and hashed.
struct IncomingBody: ~Copyable {
    /// Reason to abandon the body.
    enum Fault: Error, Equatable {
        /// Larger than the limit for its use, but within the limit of the request.
        case tooLargeForUse
        case store(BodyStore.Fault)
        case decoding(BodyDecoder.Fault)
    }

    /// Nil once the body is handed over or deleted.
    private var store: BodyStore?
    /// Decoder of the content coding; nil for a body that is stored unchanged.
    private var decoder: BodyDecoder?
    /// The running task of a hash thread; nil without one.
    private var hashing: PartHasher.Task?
    /// Checkpoint that no PROGRESS has reported; nil without one.
    var checkpoint: Checkpoint?
    /// Length and time of the last checkpoint, at first 0 and the time of the first hash thread; nil before it.
    private var lastCheckpoint: (bytes: Int, time: LoopTime)?
    /// Maximum body size of the request, in bytes.
    private(set) var maxBytes: Int
    /// Maximum size of the body of an error page or a followed redirect, in bytes; nil for a result.
    private var useBytes: Int?

    init(_ store: consuming BodyStore, maxBytes: Int) {
        self.store = consume store
        self.maxBytes = maxBytes
    }

    /// Replaces an empty body with the continuation of a lent part.
    mutating func continued(_ store: consuming BodyStore) { self.store = consume store }

    /// Sets the decoder, before the first byte.
    mutating func decode(with decoder: consuming BodyDecoder) { self.decoder = consume decoder }

    /// Decoded bytes so far; 0 once the body is handed over.
    var count: Int {
        switch store {
        case .some(let store): store.count
        case nil: 0
        }
    }

    /// Base name of the body's file; nil while the body is in memory.
    var fileName: String? {
        switch store {
        case .some(let store): store.fileName
        case nil: nil
        }
    }

    // MARK: Limits

    /// Limits the body of an error page or a followed redirect.
    mutating func lower(to bytes: Int) {
        useBytes = bytes
        store?.lower(to: bytes)
    }

    /// Raises the maximum body size; nil removes it.
    mutating func raise(to maximum: Int?) {
        maxBytes = max(maxBytes, maximum ?? .max)
        if let useBytes { store?.raise(to: min(maxBytes, useBytes)) } else { store?.raise(to: maximum) }
    }

    /// Reserves memory for an announced length.
    mutating func expect(_ bytes: Int) { store?.expect(bytes) }

    // MARK: Bytes

    /// Whether the body has a content coding to decode. Its bytes then go to `append(encoded:)`.
    var isEncoded: Bool { decoder != nil }

    /// Whether bytes remain to be decoded.
    var hasWork: Bool {
        switch decoder {
        case .some(let decoder): decoder.hasWork
        case nil: false
        }
    }

    /// Whether the body may end here according to its content coding.
    var isAtEnd: Bool {
        switch decoder {
        case .some(let decoder): decoder.isAtEnd
        case nil: true
        }
    }

    /// Whether the ratio of decoded to encoded bytes exceeds the limit.
    var isOverRatio: Bool {
        switch decoder {
        case .some(let decoder): decoder.isOverRatio
        case nil: false
        }
    }

    /// Stores decoded bytes.
    mutating func append(_ bytes: Span<UInt8>) throws(Fault) {
        do throws(BodyStore.Fault) {
            try store?.append(bytes)
        } catch {
            let isAllowed = error == .tooLarge && useBytes != nil && bytes.count <= maxBytes - count
            throw isAllowed ? Fault.tooLargeForUse : Fault.store(error)
        }
    }

    /// Appends encoded bytes. Earlier bytes must already be decoded.
    mutating func append(encoded bytes: Span<UInt8>) { decoder?.add(bytes) }

    /// Decodes about `room` bytes.
    ///
    /// - Parameter buffer: Output of one decoding step.
    /// - Returns: The remaining room.
    mutating func decode(atMost room: Int, into buffer: inout [UInt8]) throws(Fault) -> Int {
        var room = room
        while room > 0, hasWork, let (produced, work) = try step(into: &buffer) {
            room -= max(work, Limits.leastStepBytes)
            if produced > 0 { try append(buffer.span.extracting(0..<produced)) }
        }
        return room
    }

    private mutating func step(into buffer: inout [UInt8]) throws(Fault) -> (produced: Int, work: Int)? {
        do throws(BodyDecoder.Fault) {
            return try decoder?.step(into: &buffer)
        } catch {
            throw .decoding(error)
        }
    }

    // MARK: The hash of a large body

    /// Whether all bytes of the body are hashed.
    var isHashed: Bool {
        switch store {
        case .some(let store): store.isHashed
        case nil: true
        }
    }

    /// Whether enough unhashed bytes exist to start a thread.
    var hasHashWork: Bool {
        switch store {
        case .some(let store): store.hasHashWork
        case nil: false
        }
    }

    /// Returns whether the next hash thread should make a checkpoint. Must be called for the first one, too.
    mutating func needsCheckpoint(now: LoopTime) -> Bool {
        let last = lastCheckpoint ?? (0, now)
        lastCheckpoint = last
        guard count - last.bytes >= Limits.checkpointBytes, now.since(last.time) >= Limits.checkpointInterval else {
            return false
        }
        // To write so much takes the disk longer than the network takes to bring it.
        guard count - last.bytes <= Limits.mostUnsyncedBytes else {
            lastCheckpoint = (count, now)
            return false
        }
        return true
    }

    /// Starts a thread on the next range of the hash, unless one is running.
    ///
    /// - Parameters:
    ///   - isLast: Whether the body is complete, so that a small rest is hashed too.
    ///   - syncs: Whether the thread makes a checkpoint.
    mutating func hash(on hasher: PartHasher, for attempt: AttemptID, isLast: Bool, syncs: Bool) throws(SystemError) {
        guard hashing == nil, store != nil, isLast ? !isHashed : hasHashWork else { return }
        hashing = try store?.hashRest(on: hasher, for: attempt, syncs: syncs)
    }

    /// Takes the result of a hash thread. The result of another task is ignored.
    ///
    /// - Returns: false if the thread could not read the file.
    mutating func hashed(_ task: PartHasher.Task, now: LoopTime) -> Bool {
        guard task === hashing else { return true }
        hashing = nil
        guard let hash = task.takeHash() else { return false }
        store?.hashed(hash, upTo: task.range.upperBound)
        if let checkpoint = task.checkpoint {
            self.checkpoint = checkpoint
            lastCheckpoint = (checkpoint.bytes, now)
        }
        return true
    }

    mutating func stopHashing() {
        hashing?.cancel()
        hashing = nil
    }

    // MARK: The end

    /// Moves the body from memory to a file, so that clients can read it.
    mutating func moveToFile() throws(BodyStore.Fault) { try store?.moveToFile() }

    /// Hands the body over. It is deleted if the caller drops the result.
    mutating func take() -> BodyStore? { store.take() }
}
