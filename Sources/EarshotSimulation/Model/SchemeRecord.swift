/// What the model knows of a scheme that users' own workers serve: invariant 14.
struct SchemeRecord {
    /// Workers that serve it.
    private(set) var workers = 0
    /// Counts the times at which the last of them left.
    private(set) var absence = 0
    /// Whether none came back in time after that.
    private(set) var isDeserted = false

    mutating func workerCame() {
        workers += 1
        isDeserted = false
    }

    /// - Returns: the number of the absence that begins; nil if another serves it.
    mutating func workerLeft() -> Int? {
        workers -= 1
        return workers == 0 ? isAwaited() : nil
    }

    /// - Returns: the number of the absence that begins.
    mutating func isAwaited() -> Int {
        isDeserted = false
        absence += 1
        return absence
    }

    /// The time of an absence is over.
    mutating func absenceEnded(_ number: Int) {
        if workers == 0, absence == number { isDeserted = true }
    }
}
