internal import EarshotLoop
internal import EarshotWire
internal import LibCrypto

/// The body of a response while it arrives: decoded, within its limits, in memory or a file, and through SHA-256.
struct IncomingBody: ~Copyable {
    /// A reason to give the body up.
    enum Fault: Error, Equatable {
        /// Larger than allowed for its use, but not too large for the request.
        case tooLargeForUse
        case store(BodyStore.Fault)
        case decoding(BodyDecoder.Fault)
    }

    /// Nil once the body is given away or deleted.
    private var store: BodyStore?
    /// Undoes the content coding; nil for a body that is stored as it comes.
    private var decoder: BodyDecoder?
    /// The thread's share of the hash; nil while no thread works.
    private var hashing: PartHasher.Task?
    /// Maximum body size of the request, in bytes.
    private(set) var maxBytes: Int
    /// Maximum size of a body that explains a failure or a redirect; nil for a result.
    private var useBytes: Int?

    init(_ store: consuming BodyStore, maxBytes: Int) {
        self.store = consume store
        self.maxBytes = maxBytes
    }

    /// Replaces an empty body by one that continues a part.
    mutating func continued(_ store: consuming BodyStore) { self.store = consume store }

    /// Undoes a content coding from the first byte on.
    mutating func decode(with decoder: consuming BodyDecoder) { self.decoder = consume decoder }

    /// Decoded bytes so far; 0 once the body is given away.
    var count: Int {
        switch store {
        case .some(let store): store.count
        case nil: 0
        }
    }

    /// The base name of the body's file; nil while it is in memory.
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

    /// Reserves room for an announced length.
    mutating func expect(_ bytes: Int) { store?.expect(bytes) }

    // MARK: Bytes

    /// Whether the body has a content coding to undo: then `append(encoded:)` takes its bytes.
    var isEncoded: Bool { decoder != nil }

    /// Whether bytes are left to decode.
    var hasWork: Bool {
        switch decoder {
        case .some(let decoder): decoder.hasWork
        case nil: false
        }
    }

    /// Whether the body may end here as far as its content coding is concerned.
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

    /// Takes encoded bytes; earlier ones must be decoded.
    mutating func append(encoded bytes: Span<UInt8>) { decoder?.add(bytes) }

    /// Decodes about `room` bytes.
    ///
    /// - Parameter buffer: Room for one step.
    /// - Returns: the room that is left.
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

    /// Whether all of the body has gone through SHA-256.
    var isHashed: Bool {
        switch store {
        case .some(let store): store.isHashed
        case nil: true
        }
    }

    /// Whether enough of the body arrived to wake a thread for its hash.
    var hasHashWork: Bool {
        switch store {
        case .some(let store): store.hasHashWork
        case nil: false
        }
    }

    /// Has a thread continue the hash, unless one does.
    ///
    /// - Parameter isLast: Whether no more bytes come: then a small rest is hashed too.
    mutating func hash(on hasher: PartHasher, for attempt: AttemptID, isLast: Bool) throws(SystemError) {
        guard hashing == nil, store != nil, isLast ? !isHashed : hasHashWork else { return }
        hashing = try store?.hashRest(on: hasher, for: attempt)
    }

    /// Takes the result of a thread. One of another body is ignored.
    ///
    /// - Returns: false if the thread could not read the file.
    mutating func hashed(_ task: PartHasher.Task) -> Bool {
        guard task === hashing else { return true }
        hashing = nil
        guard let hash = task.takeHash() else { return false }
        store?.hashed(hash, upTo: task.range.upperBound)
        return true
    }

    mutating func stopHashing() {
        hashing?.cancel()
        hashing = nil
    }

    // MARK: The end

    /// Moves the body from memory to a file, where clients can read it.
    mutating func moveToFile() throws(BodyStore.Fault) { try store?.moveToFile() }

    /// Gives the body away, or deletes it if the caller drops the result.
    mutating func take() -> BodyStore? { store.take() }
}
