/// State of a run of `earshot get` at one moment.
struct RunSnapshot {
    /// Transfer that has received bytes.
    struct Transfer {
        /// File name of the URL, without control characters.
        var name: String
        var receivedBytes: Int
        /// Length of the body; nil if the origin did not announce it.
        var totalBytes: Int?
        /// Received bytes that may be of an earlier attempt.
        private(set) var resumedBytes = 0

        /// A transfer whose first PROGRESS has so many bytes.
        init(name: String, received: Int, total: Int? = nil, isResumable: Bool = false) {
            self.name = name
            self.receivedBytes = received
            self.totalBytes = total
            resumedBytes = isResumable ? received : 0
        }

        mutating func progressed(_ received: Int, of total: Int?) {
            self.receivedBytes = received
            self.totalBytes = total
            resumedBytes = min(resumedBytes, received)
        }
    }

    /// Number of URLs so far.
    var urlCount = 1
    /// Whether further URLs may arrive.
    var isReadingURLs = false
    var tally = Tally()
    /// Transfers in the order of the list.
    var transfers: [Transfer] = []
    var bytesPerSecond: Double?
    var elapsedSeconds = 0.0
    /// Reason why nothing moves; nil while something moves.
    var waitReason: String?

    var finishedCount: Int { tally.totalCount }

    /// Bytes of finished and running transfers.
    var transferredBytes: Double { transfers.reduce(Double(tally.bodyBytes)) { $0 + Double($1.receivedBytes) } }

    /// Bytes that have arrived in this run. Until a transfer ends, those of its first PROGRESS do not count if they may
    /// be of an earlier attempt.
    var newBytes: Double {
        transfers.reduce(Double(tally.newBytes)) { $0 + Double($1.receivedBytes - $1.resumedBytes) }
    }

    /// Estimated time until the end; nil without an estimate.
    ///
    /// If all remaining transfers run and have known sizes, it follows from their bytes, else from the number of files.
    var secondsLeft: Double? {
        guard !isReadingURLs, urlCount > finishedCount else { return nil }
        let remaining = transfers.compactMap { transfer in
            transfer.totalBytes.map { max(0, $0 - transfer.receivedBytes) }
        }
        if remaining.count == urlCount - finishedCount {
            guard let rate = bytesPerSecond, rate >= 1 else { return nil }
            return remaining.reduce(0) { $0 + Double($1) } / rate
        }
        guard finishedCount > 0, urlCount > 1, elapsedSeconds > 0 else { return nil }
        return Double(urlCount - finishedCount) * elapsedSeconds / Double(finishedCount)
    }
}
