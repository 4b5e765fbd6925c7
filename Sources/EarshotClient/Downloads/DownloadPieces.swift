internal import EarshotWire

/// Sequence of the parts of a body that arrives, read from its file on demand.
///
/// Iteration throws as ``Download/response()``. It throws ``BusError/Code/removed`` as soon as the handler is removed.
public struct DownloadPieces: AsyncSequence, Sendable {
    /// Bytes, or a restart at offset 0.
    public typealias Element = DownloadPiece
    let download: Download

    /// Returns an iterator that starts at the first byte.
    public func makeAsyncIterator() -> Iterator { Iterator(download: download) }

    /// Position of a reader.
    public struct Iterator: AsyncIteratorProtocol {
        /// Next step of a reader.
        private enum Step {
            case read(ResponseBody)
            case restart
            case wait
            case end
        }

        private let download: Download
        private var generation: Generation?
        private var offset = 0

        init(download: Download) {
            self.download = download
        }

        /// Waits for the next part; nil at the end of the body.
        ///
        /// - Parameter actor: actor of the caller.
        /// - Returns: bytes, a restart, or nil.
        /// - Throws: ``BusError``; `CancellationError` when the download or the task is cancelled.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws -> DownloadPiece? {
            while true {
                try Task.checkCancellation()
                let (state, version) = download.state.versionedValue
                if let obstacle = download.request.invalidityError { throw obstacle }
                switch try nextStep(for: state) {
                case .read(let body):
                    let piece = try await Self.readPiece(of: body, at: offset)
                    // This check runs on the caller's actor: a removal there precedes or follows it.
                    if let obstacle = download.request.invalidityError { throw obstacle }
                    offset += piece.count
                    return .bytes(piece)
                case .restart:
                    offset = 0
                    return .restarted
                case .wait: await download.state.changed(since: version)
                case .end: return nil
                }
            }
        }

        private mutating func nextStep(for state: DownloadState) throws -> Step {
            if let ending = state.ending {
                let body = try ending.result.get().body
                guard isContinuation(state.wholeBodyGeneration) else { return .restart }
                return offset < body.count ? .read(body) : .end
            }
            guard let source = state.source else { return .wait }
            guard isContinuation(source.generation) else { return .restart }
            guard offset < source.availableBytes else { return .wait }
            return .read(ResponseBody(file: source.file, length: source.availableBytes, generation: source.generation))
        }

        /// Returns whether a body of this generation continues the bytes already read. At offset 0 any does.
        private mutating func isContinuation(_ other: Generation?) -> Bool {
            let isSame = offset == 0 || other == generation
            generation = other
            return isSame
        }

        /// Reads outside the caller's actor, because a disk can be slow.
        @concurrent private static func readPiece(of body: ResponseBody, at offset: Int) async throws -> [UInt8] {
            try body.piece(at: offset)
        }
    }
}

/// Part of a body that arrives.
public enum DownloadPiece: Sendable, Equatable {
    /// The next 1 to 131,072 bytes.
    case bytes([UInt8])
    /// The content changed on the server during the transfer. Discard the earlier bytes; the next ones start at offset
    /// 0.
    case restarted
}
