internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// The body of a job while it arrives: decoded, within its limits, hashed, and stored in memory up to the inline limit,
/// then in a file.
///
/// All bytes go through SHA-256. Small bodies are hashed as they arrive, large ones by a thread that reads the file.
struct IncomingBody: ~Copyable {
    /// Reason to abandon the body.
    enum Fault: Error, Equatable {
        /// Larger than the limit for its use, but within the limit of the request.
        case tooLargeForBodyUse
        case tooLarge
        /// The file could not be created or written.
        case spoolFailed(SystemError)
        case decoding(BodyDecoder.Fault)
    }

    private let attempt: AttemptID
    private let terms: Terms
    /// Whether the broker offered a part to the attempt. The part's file has the usual name, so a new body needs
    /// another.
    private let hasOfferedPart: Bool
    /// Number of decoded bytes so far; 0 once the body is handed over or deleted.
    private(set) var count = 0
    /// Maximum body size of the request, in bytes.
    private(set) var maximumBodyBytes: Int
    /// Maximum size of the body of an error page or a followed redirect, in bytes; no limit for a result.
    private var maximumUseBytes = Int.max
    private var memoryBytes: [UInt8] = []
    /// Expected length of the body in bytes, for which memory is reserved.
    private var expectedBytes = 0
    private var file: SpoolFile?
    /// Nil while a thread owns it.
    private var hash: SHA256? = SHA256()
    /// Number of hashed bytes.
    private var hashedByteCount = 0
    /// Decoder of the content coding; nil for a body that is stored unchanged.
    private var decoder: BodyDecoder?
    /// The running task of a hash thread; nil without one.
    private var runningHashTask: PartHasher.Task?
    /// Checkpoint that no PROGRESS has reported; nil without one.
    var unreportedCheckpoint: Checkpoint?
    /// Length and time of the last checkpoint, at first 0 and the time of the first hash thread; nil before it.
    private var lastCheckpoint: (bytes: Int, time: LoopTime)?

    init(of attempt: AttemptID, _ terms: Terms, maximumBodyBytes: Int, startsAnew: Bool = false) {
        self.attempt = attempt
        self.terms = terms
        self.maximumBodyBytes = maximumBodyBytes
        self.hasOfferedPart = startsAnew
    }

    /// Continues the file of the offered part, whose bytes the hash covers.
    mutating func resumePartialBody(_ file: SpoolFile, hash: consuming SHA256, count: Int) {
        self.file = file
        self.hash = consume hash
        self.count = count
        hashedByteCount = count
    }

    /// Sets the decoder, before the first byte.
    mutating func setDecoder(_ decoder: consuming BodyDecoder) { self.decoder = consume decoder }

    /// Base name of the body's file; nil while the body is in memory.
    var fileName: String? { file?.name }

    // MARK: Limits

    /// Limits the body of an error page or a followed redirect.
    mutating func limitUseBytes(to bytes: Int) { maximumUseBytes = bytes }

    /// Raises the maximum body size; nil removes it.
    mutating func raiseMaximumBodyBytes(to maximum: Int?) { maximumBodyBytes = max(maximumBodyBytes, maximum ?? .max) }

    /// Sets the expected length, for which memory is reserved at the first bytes if the body may stay in memory. A
    /// growing array would be copied repeatedly.
    mutating func reserveCapacity(expectedBytes bytes: Int) {
        expectedBytes = min(bytes, terms.maximumInlineBodyBytes, Limits.maximumReservedBodyBytes)
    }

    // MARK: Bytes

    /// Whether the body has a content coding to decode. Its bytes then go to `append(encoded:)`.
    var isEncoded: Bool { decoder != nil }

    /// Whether bytes remain to be decoded.
    var hasUndecodedBytes: Bool {
        switch decoder {
        case .some(let decoder): decoder.hasUndecodedBytes
        case nil: false
        }
    }

    /// Whether the body may end here according to its content coding.
    var mayEndHere: Bool {
        switch decoder {
        case .some(let decoder): decoder.mayEndHere
        case nil: true
        }
    }

    /// Whether the ratio of decoded to encoded bytes exceeds the limit.
    var exceedsDecodingRatio: Bool {
        switch decoder {
        case .some(let decoder): decoder.exceedsDecodingRatio
        case nil: false
        }
    }

    /// Stores decoded bytes. After a fault the body is incomplete and must be dropped.
    mutating func append(_ bytes: Span<UInt8>) throws(Fault) {
        guard bytes.count <= maximumBodyBytes - count else { throw .tooLarge }
        guard bytes.count <= maximumUseBytes - count else { throw .tooLargeForBodyUse }
        do throws(SystemError) {
            if file == nil {
                if count + bytes.count <= terms.maximumInlineBodyBytes { appendToMemory(bytes) } else { try spill() }
            }
            try file?.write(bytes)
        } catch {
            throw .spoolFailed(error)
        }
        if hashedByteCount == count, file == nil || count + bytes.count <= Limits.inlineHashedPrefixBytes {
            hash?.update(bytes)
            hashedByteCount += bytes.count
        }
        count += bytes.count
    }

    private mutating func appendToMemory(_ bytes: Span<UInt8>) {
        if count == 0 { memoryBytes.reserveCapacity(expectedBytes) }
        unsafe bytes.withUnsafeBufferPointer { unsafe memoryBytes.append(contentsOf: $0) }
    }

    /// Moves the bytes so far from memory to a new file. It is called again only if it throws.
    private mutating func spill() throws(SystemError) {
        guard let spool = terms.spool else { throw SystemError("no spool", number: ENOENT) }
        let name = SpoolName.partFile(of: attempt, pid: getpid(), startsAnew: hasOfferedPart)
        let newFile = try SpoolFile(name, in: spool)
        try newFile.write(memoryBytes.span)
        memoryBytes = []
        file = newFile
    }

    /// Moves the body from memory to a file, so that clients can read it. Does nothing for an empty body. On failure
    /// the body stays in memory, up to its limit.
    mutating func moveToFile() { if file == nil, count > 0 { try? spill() } }

    /// Creates the file of an empty body for another writer, which reports the growth by `recordFileGrowth(to:)`.
    ///
    /// - Returns: A descriptor of the file, which the caller closes.
    mutating func openFile() throws(SystemError) -> Int32 {
        try spill()
        let descriptor = fcntl(file?.descriptor ?? -1, F_DUPFD_CLOEXEC, 0)
        guard descriptor >= 0 else { throw SystemError("dup spool file", number: errno) }
        return descriptor
    }

    /// Records that the first `bytes` bytes of the body are in its file.
    mutating func recordFileGrowth(to bytes: Int) { count = bytes }

    /// Appends encoded bytes. Earlier bytes must already be decoded.
    mutating func append(encoded bytes: Span<UInt8>) { decoder?.appendEncoded(bytes) }

    /// Decodes about `room` bytes.
    ///
    /// - Parameter buffer: Output of one decoding step.
    /// - Returns: The remaining room.
    mutating func decode(atMost room: Int, into buffer: inout [UInt8]) throws(Fault) -> Int {
        var room = room
        while room > 0, hasUndecodedBytes, let (produced, work) = try decodeStep(into: &buffer) {
            room -= max(work, Limits.minimumDecodingStepBytes)
            if produced > 0 { try append(buffer.span.extracting(0..<produced)) }
        }
        return room
    }

    private mutating func decodeStep(into buffer: inout [UInt8]) throws(Fault) -> (produced: Int, work: Int)? {
        do throws(BodyDecoder.Fault) {
            return try decoder?.decodeStep(into: &buffer)
        } catch {
            throw .decoding(error)
        }
    }

    // MARK: The hash of a large body

    /// Whether all bytes so far are hashed. Those in memory always are.
    var isHashed: Bool { file == nil || hash != nil && hashedByteCount == count }

    /// Whether enough unhashed bytes exist to start a thread.
    var hasEnoughBytesToHash: Bool { hash != nil && count - hashedByteCount >= Limits.minimumHashRangeBytes }

    /// Returns whether the next hash thread should make a checkpoint. Must be called for the first one, too.
    mutating func needsCheckpoint(now: LoopTime) -> Bool {
        let last = lastCheckpoint ?? (0, now)
        lastCheckpoint = last
        guard count - last.bytes >= Limits.minimumCheckpointDistanceBytes,
            now.since(last.time) >= Limits.minimumCheckpointInterval
        else {
            return false
        }
        // The disk would need longer to write so many bytes than the network needed to deliver them.
        guard count - last.bytes <= Limits.maximumUnsyncedBytes else {
            lastCheckpoint = (count, now)
            return false
        }
        return true
    }

    /// Starts a thread on the next range of the hash, unless one is running.
    ///
    /// - Parameters:
    ///   - isLast: Whether the body is complete, so that a small rest is hashed too.
    ///   - makesCheckpoint: Whether the thread makes a checkpoint.
    mutating func startHashing(on hasher: PartHasher, isLast: Bool, makesCheckpoint: Bool = false) throws(SystemError) {
        guard isLast ? !isHashed : hasEnoughBytesToHash, let file, let hash = hash.take() else { return }
        runningHashTask = try hasher.hash(
            file.descriptor, hashedByteCount..<count, continuing: hash, for: attempt, syncs: makesCheckpoint)
    }

    /// Takes the result of a hash thread. The result of another task is ignored.
    ///
    /// - Returns: false if the thread could not read the file.
    mutating func receiveHash(from task: PartHasher.Task, now: LoopTime) -> Bool {
        guard task === runningHashTask else { return true }
        runningHashTask = nil
        guard let hash = task.takeHash() else { return false }
        self.hash = consume hash
        hashedByteCount = task.range.upperBound
        if let checkpoint = task.checkpoint {
            self.unreportedCheckpoint = checkpoint
            lastCheckpoint = (checkpoint.byteCount, now)
        }
        return true
    }

    mutating func stopHashing() {
        runningHashTask?.cancel()
        runningHashTask = nil
    }

    // MARK: The end

    /// Hands the complete and hashed body over. The receiver owns its file, and must delete it.
    ///
    /// - Parameter completion: Receives length, hash and file.
    /// - Returns: The bytes of a body in memory; nil for an empty one.
    mutating func finish(into completion: inout Completion) throws(Refusal) -> [UInt8]? {
        guard isHashed, let hash = hash.take() else { preconditionFailure("\(attempt) ends before its hash") }
        do throws(SystemError) { try file?.completeFile() } catch { throw Refusal(spoolError: error) }
        completion.bodyByteCount = count
        completion.sha256 = hash.finalize().hex
        completion.fileName = file?.name
        defer { discard() }
        return memoryBytes.isEmpty ? nil : memoryBytes
    }

    /// Leaves the file of an incomplete body to the broker.
    ///
    /// - Returns: Its name; nil if there is none.
    mutating func handOverPartialFile() -> String? {
        defer { discard() }
        guard let file, file.closeWithoutDeleting() else { return nil }
        return file.name
    }

    /// Deletes the body.
    mutating func discard() {
        stopHashing()
        (memoryBytes, file, count, hashedByteCount) = ([], nil, 0, 0)
    }
}
