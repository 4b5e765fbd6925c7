/// A request whose body is read while it arrives, from the file in which it grows: nothing of it is kept in memory,
/// and who reads slowly holds up nobody.
///
/// ```swift
/// let download = try handler.download(url)
/// for try await piece in download.pieces {
///     switch piece {
///     case .bytes(let bytes): output += bytes
///     case .restarted: output = []
///     }
/// }
/// let response = try await download.response()
/// ```
///
/// When the last reference goes, its sequences included, it is cancelled.
public final class Download: Sendable {
    let request: Request
    let state: Observed<DownloadState>

    init(_ request: Request, _ state: Observed<DownloadState>) {
        self.request = request
        self.state = state
    }

    deinit { cancel() }

    /// No longer wants it. What is awaited ends with `CancellationError`.
    public func cancel() {
        if state.current.value.ending == nil { request.cancel() }
    }

    /// Changes its class while it waits.
    public func setPriority(_ priority: Priority) { request.setPriority(priority) }

    /// The body as it arrives. Each reader begins at the start.
    public var pieces: DownloadPieces { DownloadPieces(download: self) }

    /// How far it has come, each time that is told: four times a second at most. Who is slow sees the last; it ends
    /// with the download, however that ends.
    public var progress: DownloadProgressSequence { DownloadProgressSequence(download: self) }

    /// What became of it. Its body is whole.
    ///
    /// - Throws: ``BusError``; `CancellationError` when the download or the task is cancelled.
    public nonisolated(nonsending) func response() async throws -> Response {
        while true {
            let (value, version) = state.current
            if let obstacle = request.obstacle { throw obstacle }
            if let ending = value.ending { return try ending.result.get() }
            try Task.checkCancellation()
            await state.changed(since: version)
        }
    }
}
