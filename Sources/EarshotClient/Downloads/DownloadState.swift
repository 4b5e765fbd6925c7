internal import EarshotWire

/// State of a download: the file of its body, its progress and its ending. `BusLoop` writes it, and ``Download`` reads
/// it.
struct DownloadState: Sendable {
    /// File of a body that arrives.
    struct Source: Sendable {
        /// Identity of the content.
        let generation: Generation
        let file: DeliveredFile
        /// Bytes available in the file.
        var availableBytes: Int
    }

    private(set) var progress = DownloadProgress(received: 0, total: nil)
    /// File to read from; nil while there is none.
    private(set) var source: Source?
    /// Ending; nil while the download runs.
    private(set) var ending: RequestEnding?
    /// Identity of the whole body's content; nil if unknown.
    private(set) var wholeBodyGeneration: Generation?

    /// Records a progress report.
    ///
    /// - Parameter file: file of the report, if opened: see ``needsFile(of:)``.
    mutating func recordProgress(_ reported: Progress, file: DeliveredFile?) {
        progress = DownloadProgress(received: reported.receivedBytes, total: reported.totalBytes)
        guard let generation = reported.generation else { return }
        if let file {
            source = Source(generation: generation, file: file, availableBytes: reported.receivedBytes)
        } else if let source, source.generation == generation {
            self.source?.availableBytes = max(source.availableBytes, reported.receivedBytes)
        } else {
            // The content changed and its file was renamed. The next report has the new path.
            source = nil
        }
    }

    /// Returns whether the report names a file that is not open.
    func needsFile(of reported: Progress) -> Bool {
        reported.filePath != nil && reported.generation != nil && reported.generation != source?.generation
    }

    mutating func recordEnding(_ ending: RequestEnding) {
        self.ending = ending
        defer { source = nil }
        guard case .response(let response) = ending else { return }
        wholeBodyGeneration = response.body.generation
        // A body in memory has no generation. It continues the file if it begins with the file's bytes.
        if let source, response.body.begins(withFile: source.file, byteCount: source.availableBytes) {
            wholeBodyGeneration = source.generation
        }
        progress = DownloadProgress(received: response.body.count, total: response.body.count)
    }
}

/// Progress of a download.
public struct DownloadProgress: Sendable, Equatable {
    /// Decoded bytes received. Can decrease when another attempt starts.
    public let received: Int
    /// Total decoded bytes; nil if the server has not stated them.
    public let total: Int?
}
