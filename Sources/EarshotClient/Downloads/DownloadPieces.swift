internal import EarshotWire

/// A part of a body that arrives.
public enum DownloadPiece: Sendable, Equatable {
    /// The next bytes, 1 to 131,072.
    case bytes([UInt8])
    /// The server has another version by now: what came before is no part of the body, which begins anew.
    case restarted
}

/// A body as it arrives, read from its file when it is asked for.
///
/// It throws as ``Download/response()``, ``BusError/Code/removed`` as soon as the handler is removed.
public struct DownloadPieces: AsyncSequence, Sendable {
    /// A part of the body, or the news that it begins anew.
    public typealias Element = DownloadPiece
    let download: Download

    /// From the beginning.
    public func makeAsyncIterator() -> Iterator { Iterator(download: download) }

    /// Where one reader is.
    public struct Iterator: AsyncIteratorProtocol {
        /// What there is to do.
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

        /// The next piece; nil at the end.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws -> DownloadPiece? {
            while true {
                try Task.checkCancellation()
                let (state, version) = download.state.current
                if let obstacle = download.request.obstacle { throw obstacle }
                switch try step(state) {
                case .read(let body):
                    let piece = try await Self.read(body, offset)
                    // On the caller's actor: a removal there is before this or after it.
                    if let obstacle = download.request.obstacle { throw obstacle }
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

        private mutating func step(_ state: DownloadState) throws -> Step {
            if let ending = state.ending {
                let body = try ending.result.get().body
                guard isSame(state.endGeneration) else { return .restart }
                return offset < body.count ? .read(body) : .end
            }
            guard let source = state.source else { return .wait }
            guard isSame(source.generation) else { return .restart }
            guard offset < source.count else { return .wait }
            return .read(ResponseBody(source.file, length: source.count, source.generation))
        }

        /// Whether bytes of this generation go on where this reader is. One at the start takes any.
        private mutating func isSame(_ other: Generation?) -> Bool {
            let isSame = offset == 0 || other == generation
            generation = other
            return isSame
        }

        /// Off the caller's actor: a disk may be slow.
        @concurrent private static func read(_ body: ResponseBody, _ offset: Int) async throws -> [UInt8] {
            try body.piece(at: offset)
        }
    }
}
