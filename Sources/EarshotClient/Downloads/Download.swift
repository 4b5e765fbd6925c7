/// Request whose body is read from its file while it arrives.
///
/// The body is not kept in memory, and a slow reader delays neither the transfer nor other readers.
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
/// The last reference, including its sequences, cancels the request.
public final class Download: Sendable {
    let request: Request
    let state: Observed<DownloadState>

    init(_ request: Request, _ state: Observed<DownloadState>) {
        self.request = request
        self.state = state
    }

    deinit { cancel() }

    /// Cancels the request. Waiting readers fail with `CancellationError`. Has no effect after the end.
    public func cancel() {
        if state.versionedValue.value.ending == nil { request.cancel() }
    }

    /// Changes the priority while the request is queued.
    ///
    /// - Parameter priority: the new class.
    public func setPriority(_ priority: Priority) { request.setPriority(priority) }

    /// The body while it arrives. Each reader starts at the first byte.
    public var pieces: DownloadPieces { DownloadPieces(download: self) }

    /// Progress reports, at most four per second. A slow reader gets the latest only. The sequence ends with the
    /// download, also after a failure.
    public var progress: DownloadProgressSequence { DownloadProgressSequence(download: self) }

    /// Waits for the end of the download and returns the response with its whole body.
    ///
    /// - Returns: a response with a status below 400.
    /// - Throws: ``BusError``; `CancellationError` when the download or the task is cancelled.
    public nonisolated(nonsending) func response() async throws -> Response {
        while true {
            let (value, version) = state.versionedValue
            if let obstacle = request.invalidityError { throw obstacle }
            if let ending = value.ending { return try ending.result.get() }
            try Task.checkCancellation()
            await state.changed(since: version)
        }
    }
}

/// Sequence of progress reports. It ends with the download.
public struct DownloadProgressSequence: AsyncSequence, Sendable {
    /// A progress report.
    public typealias Element = DownloadProgress
    /// Iteration does not throw. ``Download/response()`` throws the failure of the download.
    public typealias Failure = Never
    let download: Download

    /// Returns an iterator that starts with the latest report.
    public func makeAsyncIterator() -> Iterator { Iterator(download: download) }

    /// Position of a reader.
    public struct Iterator: AsyncIteratorProtocol {
        private let download: Download
        private var lastProgress: DownloadProgress?

        init(download: Download) {
            self.download = download
        }

        /// Waits for the next report that differs from the last one; nil when the download has ended or the task is
        /// cancelled.
        ///
        /// - Parameter actor: actor of the caller.
        /// - Returns: the report, or nil.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> DownloadProgress? {
            while !Task.isCancelled {
                let (state, version) = download.state.versionedValue
                if download.request.invalidityError != nil { return nil }
                if version > 0, state.progress != lastProgress {
                    lastProgress = state.progress
                    return lastProgress
                }
                if state.ending != nil { return nil }
                await download.state.changed(since: version)
            }
            return nil
        }
    }
}
