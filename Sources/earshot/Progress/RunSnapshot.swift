/// State of a run of `earshot get` at one moment.
struct RunSnapshot {
    /// Transfer that has received bytes.
    struct Transfer {
        /// File name of the URL, without control characters.
        var name: String
        var received: Int
        /// Length of the body; nil if the origin did not announce it.
        var total: Int?
        /// Received bytes that may be of an earlier attempt.
        private(set) var base = 0

        /// A transfer whose first PROGRESS has so many bytes.
        init(name: String, received: Int, total: Int? = nil, isResumable: Bool = false) {
            self.name = name
            self.received = received
            self.total = total
            base = isResumable ? received : 0
        }

        mutating func progressed(_ received: Int, of total: Int?) {
            self.received = received
            self.total = total
            base = min(base, received)
        }
    }

    /// Number of URLs so far.
    var urlCount = 1
    /// Whether further URLs may arrive.
    var isListing = false
    var tally = Tally()
    /// Transfers in the order of the list.
    var transfers: [Transfer] = []
    var bytesPerSecond: Double?
    var seconds = 0.0
    /// Reason why nothing moves; nil while something moves.
    var waiting: String?

    var done: Int { tally.total }

    /// Bytes of finished and running transfers.
    var bytes: Double { transfers.reduce(Double(tally.bytes)) { $0 + Double($1.received) } }

    /// Bytes that have arrived in this run. Until a transfer ends, those of its first PROGRESS do not count if they may
    /// be of an earlier attempt.
    var newBytes: Double { transfers.reduce(Double(tally.newBytes)) { $0 + Double($1.received - $1.base) } }

    /// Estimated time until the end; nil without an estimate.
    ///
    /// If all remaining transfers run and have known sizes, it follows from their bytes, else from the number of files.
    var secondsLeft: Double? {
        guard !isListing, urlCount > done else { return nil }
        let remaining = transfers.compactMap { transfer in transfer.total.map { max(0, $0 - transfer.received) } }
        if remaining.count == urlCount - done {
            guard let rate = bytesPerSecond, rate >= 1 else { return nil }
            return remaining.reduce(0) { $0 + Double($1) } / rate
        }
        guard done > 0, urlCount > 1, seconds > 0 else { return nil }
        return Double(urlCount - done) * seconds / Double(done)
    }
}
