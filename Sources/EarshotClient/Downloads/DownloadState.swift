internal import EarshotWire

/// How far a download has come, as the loop told it.
struct DownloadState: Sendable {
    /// A file in which a body grows.
    struct Source: Sendable {
        /// Of whose bytes it is.
        let generation: Generation
        let file: SpoolFile
        /// Bytes of it that are there.
        var count: Int
    }

    private(set) var progress = DownloadProgress(received: 0, total: nil)
    /// Nil while nothing can be read.
    private(set) var source: Source?
    /// Nil while it runs.
    private(set) var ending: Ending?
    /// Of whose bytes the whole body is; nil if that is not known.
    private(set) var endGeneration: Generation?

    /// Notes what the broker told.
    ///
    /// - Parameter file: the file it told of, if that was opened for this: see ``needsFile(of:)``.
    mutating func progressed(_ told: Progress, _ file: SpoolFile?) {
        progress = DownloadProgress(received: told.received, total: told.total)
        guard let generation = told.generation else { return }
        if let file {
            source = Source(generation: generation, file: file, count: told.received)
        } else if let source, source.generation == generation {
            self.source?.count = max(source.count, told.received)
        } else {
            // Of another body, in a file that has another name by now: the next message tells it.
            source = nil
        }
    }

    /// Whether what is told of is in a file that is not open yet.
    func needsFile(of told: Progress) -> Bool {
        told.file != nil && told.generation != nil && told.generation != source?.generation
    }

    mutating func ended(_ ending: Ending) {
        self.ending = ending
        defer { source = nil }
        guard case .response(let response) = ending else { return }
        endGeneration = response.body.generation
        // One that came in memory has none, and is what was in the file if it begins so.
        if let source, response.body.begins(with: source.file, source.count) { endGeneration = source.generation }
        progress = DownloadProgress(received: response.body.count, total: response.body.count)
    }
}

/// How far a download has come.
public struct DownloadProgress: Sendable, Equatable {
    /// Decoded bytes so far. It can fall: when another attempt begins.
    public let received: Int
    /// Decoded bytes in all; nil while the server has not told.
    public let total: Int?
}
