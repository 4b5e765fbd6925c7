internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Storage of a decoded body while it arrives: in memory up to the inline limit, then in a file.
///
/// All bytes go through SHA-256. Small bodies are hashed as they arrive, large ones by a thread that reads the file.
struct BodyStore: ~Copyable {
    /// Reason why bytes were not stored.
    enum Fault: Error, Equatable {
        /// More than the maximum size.
        case tooLarge
        /// The file could not be created or written.
        case spoolFailed(SystemError)
    }

    /// A complete body.
    struct Body: Equatable {
        /// Nil if the body is in a file.
        let inline: [UInt8]?
        /// Base name of the file; nil if the body is in memory.
        let file: String?
        /// Decoded length in bytes.
        let length: Int
        let digest: Digest
    }

    /// Number of decoded bytes so far.
    private(set) var count = 0
    private let inlineLimit: Int
    private var maximum: Int
    private let makeFile: () throws(SystemError) -> SpoolFile
    private var memory: [UInt8] = []
    /// Expected length of the body in bytes, for which memory is reserved.
    private var expected = 0
    private var file: SpoolFile?
    /// Nil while a thread owns it.
    private var hash: SHA256? = SHA256()
    /// Number of hashed bytes.
    private var hashedCount = 0

    /// - Parameters:
    ///   - inlineLimit: Maximum size of a body in memory, in bytes.
    ///   - maximum: Maximum size of the body in bytes; nil for no limit.
    ///   - makeFile: Called when the body grows beyond its size in memory. Called again only if it throws.
    init(inlineLimit: Int, maximum: Int?, makeFile: @escaping () throws(SystemError) -> SpoolFile) {
        self.inlineLimit = inlineLimit
        self.maximum = maximum ?? .max
        self.makeFile = makeFile
    }

    /// Continues a body whose first `count` bytes are in `file` and are covered by `hash`.
    init(resuming file: SpoolFile, _ hash: consuming SHA256, count: Int, maximum: Int?) {
        inlineLimit = 0
        self.maximum = maximum ?? .max
        makeFile = { () throws(SystemError) in throw SystemError("no second spool file", number: EEXIST) }
        self.file = file
        self.hash = consume hash
        self.count = count
        hashedCount = count
    }

    /// Base name of the body's file; nil while the body is in memory.
    var fileName: String? { file?.name }

    /// Whether all bytes so far are hashed.
    var isHashed: Bool { hash != nil && hashedCount == count }

    /// Whether enough unhashed bytes exist to start a thread.
    var hasHashWork: Bool { hash != nil && count - hashedCount >= Limits.hashStepBytes }

    /// Starts a thread on the unhashed bytes. The caller passes the result to `hashed(_:upTo:)`.
    ///
    /// The body must be in a file and no thread may own the hash.
    ///
    /// - Parameter syncs: Whether the thread makes a checkpoint.
    mutating func hashRest(on hasher: PartHasher, for attempt: AttemptID, syncs: Bool = false) throws(SystemError)
        -> PartHasher.Task
    {
        guard let file, let hash = hash.take() else { preconditionFailure("\(attempt) has nothing to hash") }
        return try hasher.hash(file.descriptor, hashedCount..<count, continuing: hash, for: attempt, syncs: syncs)
    }

    /// Takes back the hash after `hashRest`, which now covers `count` bytes.
    mutating func hashed(_ hash: consuming SHA256, upTo count: Int) {
        self.hash = consume hash
        hashedCount = count
    }

    /// Ends the body and leaves its file, if any, to the broker.
    ///
    /// - Returns: Whether there is a file.
    consuming func leave() -> Bool {
        file?.leave() ?? false
    }

    /// Moves the body from memory to a file, so that other processes can read it. Does nothing for an empty body.
    mutating func moveToFile() throws(Fault) {
        guard file == nil, count > 0 else { return }
        do throws(SystemError) {
            let made = try makeFile()
            try made.write(memory.span)
            memory = []
            file = made
        } catch {
            throw .spoolFailed(error)
        }
    }

    /// Raises the maximum size; nil removes it.
    mutating func raise(to maximum: Int?) {
        self.maximum = max(self.maximum, maximum ?? .max)
    }

    /// Lowers the maximum size.
    mutating func lower(to maximum: Int) {
        self.maximum = min(self.maximum, maximum)
    }

    /// Sets the expected length, for which memory is reserved at the first bytes if the body may stay in memory. A
    /// growing array would be copied repeatedly.
    mutating func expect(_ bytes: Int) {
        expected = min(bytes, inlineLimit, Limits.reservedBytes)
    }

    /// Appends bytes. After a fault the body is incomplete and must be dropped.
    mutating func append(_ bytes: Span<UInt8>) throws(Fault) {
        guard bytes.count <= maximum - count else { throw .tooLarge }
        do throws(SystemError) {
            if let file {
                try file.write(bytes)
            } else if count + bytes.count <= inlineLimit {
                remember(bytes)
            } else {
                try begin(with: bytes)
            }
        } catch {
            throw .spoolFailed(error)
        }
        if hashedCount == count, file == nil || count + bytes.count <= Limits.ownHashBytes {
            hash?.update(bytes)
            hashedCount += bytes.count
        }
        count += bytes.count
    }

    private mutating func remember(_ bytes: Span<UInt8>) {
        if count == 0 { memory.reserveCapacity(expected) }
        unsafe bytes.withUnsafeBufferPointer { unsafe memory.append(contentsOf: $0) }
    }

    /// Moves the body to a file and appends the bytes.
    private mutating func begin(with bytes: Span<UInt8>) throws(SystemError) {
        let made = try makeFile()
        try made.write(memory.span)
        try made.write(bytes)
        memory = []
        file = made
    }

    /// Ends the body, of which all bytes must be hashed. The receiver owns its file and must delete it.
    consuming func finish() throws(Fault) -> Body {
        guard isHashed, let hash = hash.take() else { preconditionFailure("a body ends before its hash") }
        do throws(SystemError) { try file?.keep() } catch { throw .spoolFailed(error) }
        return Body(
            inline: file == nil ? memory : nil, file: file?.name, length: count, digest: hash.finalize())
    }
}
