internal import EarshotWire

/// The decoded body of a response: bytes in memory, or a file in the broker's spool.
///
/// A file can be read as long as a copy of this value exists, also after the broker has ended.
public struct ResponseBody: Sendable {
    /// Bytes read by one call.
    static let pieceBytes = 128 << 10

    private enum Storage {
        case bytes([UInt8])
        case file(SpoolFile)
    }

    /// Bytes of it.
    public let count: Int
    /// Of whose bytes it is, if that was told.
    let generation: Generation?
    private let storage: Storage

    init(_ bytes: [UInt8]) {
        count = bytes.count
        generation = nil
        storage = .bytes(bytes)
    }

    init(_ file: SpoolFile, length: Int, _ generation: Generation?) {
        count = length
        self.generation = generation
        storage = .file(file)
    }

    /// A path under which the body can be opened by this process and by others of the user, for as long as a copy of
    /// this value exists; nil if the body is in memory. It cannot be renamed or linked: copy from it.
    public var path: String? {
        switch storage {
        case .bytes: nil
        case .file(let file): file.path
        }
    }

    /// All of it, in memory.
    ///
    /// - Throws: ``BusError`` with ``BusError/Code/bodyLost`` when the disk does; `CancellationError`.
    public func bytes() async throws -> [UInt8] {
        if case .bytes(let bytes) = storage { return bytes }
        var all: [UInt8] = []
        all.reserveCapacity(count)
        while all.count < count {
            try Task.checkCancellation()
            all += try piece(at: all.count)
        }
        return all
    }

    /// It in pieces of up to 128 KiB, read when they are asked for. Throws as ``bytes()``.
    public var pieces: Pieces { Pieces(body: self) }

    /// The next bytes from `offset` on, which is below `count`.
    func piece(at offset: Int) throws(BusError) -> [UInt8] {
        switch storage {
        case .bytes(let bytes): return Array(bytes[offset...].prefix(Self.pieceBytes))
        case .file(let file):
            let piece = try file.read(at: offset, count: min(Self.pieceBytes, count - offset))
            guard !piece.isEmpty else { throw BusError(.bodyLost, "The body's file became shorter.") }
            return piece
        }
    }

    /// Whether it is in memory, and its first `bytes` are those of a file.
    func begins(with file: SpoolFile, _ bytes: Int) -> Bool {
        guard case .bytes(let all) = storage, bytes <= all.count else { return false }
        var offset = 0
        while offset < bytes {
            let told = try? file.read(at: offset, count: min(Self.pieceBytes, bytes - offset))
            guard let told, !told.isEmpty, told.elementsEqual(all[offset...].prefix(told.count)) else { return false }
            offset += told.count
        }
        return true
    }

    /// A body piece by piece.
    public struct Pieces: AsyncSequence, Sendable {
        /// 1 to 131,072 bytes.
        public typealias Element = [UInt8]
        let body: ResponseBody

        /// From the beginning.
        public func makeAsyncIterator() -> Iterator { Iterator(body: body) }

        /// Where one reader is.
        public struct Iterator: AsyncIteratorProtocol {
            let body: ResponseBody
            private var offset = 0

            init(body: ResponseBody) {
                self.body = body
            }

            /// The next piece; nil at the end.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> [UInt8]? {
                try Task.checkCancellation()
                guard offset < body.count else { return nil }
                let piece = try await Self.read(body, offset)
                offset += piece.count
                return piece
            }

            /// Off the caller's actor: a disk may be slow.
            @concurrent private static func read(_ body: ResponseBody, _ offset: Int) async throws -> [UInt8] {
                try body.piece(at: offset)
            }
        }
    }
}
