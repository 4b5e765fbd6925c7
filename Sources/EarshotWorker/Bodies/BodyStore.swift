internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Where the decoded bytes of a body go while they arrive: into memory up to the inline limit, beyond it into a file,
/// and into a SHA-256 in any case: what is small at once, what is large from its file, by a thread.
struct BodyStore: ~Copyable {
    /// Why bytes were not taken.
    enum Fault: Error, Equatable {
        /// More than allowed.
        case tooLarge
        /// The disk, or the user's share of it, is full.
        case spoolFull
        /// The file could not be made or written for another reason.
        case spoolFailed(SystemError)
    }

    /// A body that is all there.
    struct Body: Equatable {
        /// Nil if it is in a file.
        let inline: [UInt8]?
        /// The file's base name; nil if it is in memory.
        let file: String?
        /// Decoded bytes.
        let length: Int
        let digest: Digest
    }

    /// Decoded bytes so far.
    private(set) var count = 0
    private let inlineLimit: Int
    /// Bytes from which on it is to be in a file; `inlineLimit` once the disk has taken none.
    private var memoryLimit: Int
    private var maximum: Int
    private let makeFile: () throws(SystemError) -> SpoolFile
    private var memory: [UInt8] = []
    /// Bytes of body that there is to be room for.
    private var expected = 0
    private var file: SpoolFile?
    /// Nil while a thread has it.
    private var hash: SHA256? = SHA256()
    /// Bytes that have gone through the hash.
    private var hashedCount = 0

    /// - Parameters:
    ///   - inlineLimit: bytes up to which a body can stay in memory.
    ///   - wished: bytes up to which it is to stay there if the disk takes files; nil for `inlineLimit`.
    ///   - maximum: bytes a body may have; nil for no limit.
    ///   - makeFile: called when a body grows beyond what stays in memory; once, unless it throws.
    init(
        inlineLimit: Int, wished: Int? = nil, maximum: Int?, makeFile: @escaping () throws(SystemError) -> SpoolFile
    ) {
        self.inlineLimit = inlineLimit
        memoryLimit = min(wished ?? .max, inlineLimit)
        self.maximum = maximum ?? .max
        self.makeFile = makeFile
    }

    /// A body whose first `count` bytes are in `file` and have gone through `hash`.
    init(resuming file: SpoolFile, _ hash: consuming SHA256, count: Int, maximum: Int?) {
        inlineLimit = 0
        memoryLimit = 0
        self.maximum = maximum ?? .max
        makeFile = { () throws(SystemError) in throw SystemError("no second spool file", number: EEXIST) }
        self.file = file
        self.hash = consume hash
        self.count = count
        hashedCount = count
    }

    /// The base name of the file the body grows in; nil while it is in memory.
    var fileName: String? { file?.name }

    /// Whether all bytes so far have gone through the hash.
    var isHashed: Bool { hash != nil && hashedCount == count }

    /// Whether a thread has something to do.
    var hasHashWork: Bool { hash != nil && count - hashedCount >= Limits.hashStepBytes }

    /// Has a thread put what is not hashed yet through the hash; `hashed` takes it back.
    mutating func hashRest(on hasher: PartHasher, for attempt: AttemptID) throws(SystemError) -> PartHasher.Task {
        guard let file, let hash = hash.take() else { preconditionFailure("\(attempt) has nothing to hash") }
        return try hasher.hash(file.descriptor, hashedCount..<count, continuing: hash, for: attempt)
    }

    /// Takes the hash back that has seen what `hashRest` gave.
    mutating func hashed(_ hash: consuming SHA256, upTo count: Int) {
        self.hash = consume hash
        hashedCount = count
    }

    /// Gives the body up and leaves its file to the broker.
    ///
    /// - Returns: whether there is one.
    consuming func leave() -> Bool {
        file?.leave()
        return file != nil
    }

    /// Moves what is in memory into a file, where others can read it.
    mutating func moveToFile() throws(Fault) {
        guard file == nil, count > 0 else { return }
        do throws(SystemError) {
            let made = try makeFile()
            try made.write(memory.span)
            memory = []
            file = made
        } catch {
            throw Self.fault(error)
        }
    }

    /// Lets the body have more bytes than before; nil for any number.
    mutating func raise(to maximum: Int?) {
        self.maximum = max(self.maximum, maximum ?? .max)
    }

    /// Lets the body have no more bytes than these.
    mutating func lower(to maximum: Int) {
        self.maximum = min(self.maximum, maximum)
    }

    /// Has room for so many bytes when the first come, if they may stay in memory: what grows by and by is copied
    /// each time.
    mutating func expect(_ bytes: Int) {
        expected = min(bytes, memoryLimit, Limits.reservedBytes)
    }

    /// Takes the next bytes. After a fault the body is of no use.
    mutating func append(_ bytes: Span<UInt8>) throws(Fault) {
        guard bytes.count <= maximum - count else { throw .tooLarge }
        do throws(SystemError) {
            if let file {
                try file.write(bytes)
            } else if count + bytes.count <= memoryLimit {
                remember(bytes)
            } else if count + bytes.count > inlineLimit {
                try begin(with: bytes)
            } else {
                do throws(SystemError) {
                    try begin(with: bytes)
                } catch {
                    // It was a wish.
                    memoryLimit = inlineLimit
                    remember(bytes)
                }
            }
        } catch {
            throw Self.fault(error)
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

    /// Goes on in a file.
    private mutating func begin(with bytes: Span<UInt8>) throws(SystemError) {
        let made = try makeFile()
        try made.write(memory.span)
        try made.write(bytes)
        memory = []
        file = made
    }

    /// The body, whose file from now on is its receiver's to delete. All of it has to be hashed.
    consuming func finish() throws(Fault) -> Body {
        guard isHashed, let hash = hash.take() else { preconditionFailure("a body ends before its hash") }
        do throws(SystemError) { try file?.keep() } catch { throw Self.fault(error) }
        return Body(
            inline: file == nil ? memory : nil, file: file?.name, length: count, digest: hash.finalize())
    }

    private static func fault(_ error: SystemError) -> Fault {
        error.number == ENOSPC || error.number == EDQUOT ? .spoolFull : .spoolFailed(error)
    }
}
