/// How far a download has come, as it is told. Without an end of its own kind: it ends with the download.
public struct DownloadProgressSequence: AsyncSequence, Sendable {
    /// How far it is.
    public typealias Element = DownloadProgress
    /// What became of the download is told by ``Download/response()``.
    public typealias Failure = Never
    let download: Download

    /// From what was told last.
    public func makeAsyncIterator() -> Iterator { Iterator(download: download) }

    /// What one reader has seen.
    public struct Iterator: AsyncIteratorProtocol {
        private let download: Download
        private var last: DownloadProgress?

        init(download: Download) {
            self.download = download
        }

        /// The next that is news; nil when the download has ended, or the task is cancelled.
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
