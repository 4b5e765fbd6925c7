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
        private var last: DownloadProgress?

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
                let (state, version) = download.state.current
                if download.request.obstacle != nil { return nil }
                if version > 0, state.progress != last {
                    last = state.progress
                    return last
                }
                if state.ending != nil { return nil }
                await download.state.changed(since: version)
            }
            return nil
        }
    }
}
