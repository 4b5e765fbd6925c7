internal import EarshotWire

/// Decoded body of a response: bytes in memory, or an open file of the broker.
///
/// A file remains readable while a copy of this value exists, even after the end of the broker.
public struct ResponseBody: Sendable {
    /// Maximum bytes per read.
    static let maximumPieceBytes = 128 << 10

    private enum Storage {
        case bytes([UInt8])
        case file(DeliveredFile)
    }

    /// Length in bytes.
    public let count: Int
    /// Identity of the content, if the broker stated it.
    let generation: Generation?
    private let storage: Storage

    init(bytes: [UInt8]) {
        count = bytes.count
        generation = nil
        storage = .bytes(bytes)
    }

    init(file: DeliveredFile, length: Int, generation: Generation?) {
        count = length
        self.generation = generation
        storage = .file(file)
    }

    /// Path of the body's file, for this process and other processes of the user; nil if the body is in memory.
    ///
    /// The path is valid while a copy of this value exists. Copy the file from it: it cannot be renamed or hard-linked.
    public var path: String? {
        switch storage {
        case .bytes: nil
        case .file(let file): file.path
        }
    }

    /// Returns the whole body in memory.
    ///
    /// - Returns: ``count`` bytes.
    /// - Throws: ``BusError`` with ``BusError/Code/bodyLost`` if the file cannot be read; `CancellationError`.
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

    /// The body in pieces of up to 128 KiB, read on demand. Reading throws as ``bytes()``.
    public var pieces: Pieces { Pieces(body: self) }

    /// Returns the next bytes from `offset`, which must be below `count`.
    func piece(at offset: Int) throws(BusError) -> [UInt8] {
        switch storage {
        case .bytes(let bytes): return Array(bytes[offset...].prefix(Self.maximumPieceBytes))
        case .file(let file):
            let piece = try file.read(at: offset, count: min(Self.maximumPieceBytes, count - offset))
            guard !piece.isEmpty else {
                throw BusError(.bodyLost, "The file of the body was truncated: request it again.")
            }
            return piece
        }
    }

    /// Returns whether the body is in memory and begins with the first `bytes` of a file.
    func begins(withFile file: DeliveredFile, byteCount bytes: Int) -> Bool {
        guard case .bytes(let all) = storage, bytes <= all.count else { return false }
        var offset = 0
        while offset < bytes {
            let reported = try? file.read(at: offset, count: min(Self.maximumPieceBytes, bytes - offset))
            guard let reported, !reported.isEmpty, reported.elementsEqual(all[offset...].prefix(reported.count)) else {
                return false
            }
            offset += reported.count
        }
        return true
    }

    /// Sequence of the pieces of a body.
    public struct Pieces: AsyncSequence, Sendable {
        /// A piece of 1 to 131,072 bytes.
        public typealias Element = [UInt8]
        let body: ResponseBody

        /// Returns an iterator that starts at the first byte.
        public func makeAsyncIterator() -> Iterator { Iterator(body: body) }

        /// Position of a reader.
        public struct Iterator: AsyncIteratorProtocol {
            let body: ResponseBody
            private var offset = 0

            init(body: ResponseBody) {
                self.body = body
            }

            /// Returns the next piece; nil at the end of the body.
            ///
            /// - Parameter actor: actor of the caller.
            /// - Returns: 1 to 131,072 bytes, or nil.
            /// - Throws: ``BusError`` with ``BusError/Code/bodyLost`` if the file cannot be read; `CancellationError`.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> [UInt8]? {
                try Task.checkCancellation()
                guard offset < body.count else { return nil }
                let piece = try await Self.readPiece(of: body, at: offset)
                offset += piece.count
                return piece
            }

            /// Reads outside the caller's actor, because a disk can be slow.
            @concurrent private static func readPiece(of body: ResponseBody, at offset: Int) async throws -> [UInt8] {
                try body.piece(at: offset)
            }
        }
    }
}

/// Way in which a process gets bodies that the broker has in files.
///
/// The broker can impose ``pull``, for example on a client of another user.
public enum BodyAccess: Sendable {
    /// The process opens the files of the broker.
    case path
    /// The broker sends the bytes, and the process stores them in unnamed files of its own. For a process that cannot
    /// open the broker's files, as in a container.
    case pull
}
