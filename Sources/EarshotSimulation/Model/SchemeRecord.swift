/// Model's state of a scheme of a principal served by users' workers: invariant 14.
struct SchemeRecord {
    /// Number of workers that serve it.
    private(set) var workers = 0
    /// Number of times at which it lost its last worker.
    private(set) var absence = 0
    /// Whether no worker came back in time.
    private(set) var isUnserved = false
    /// Whether a worker ever served it.
    private(set) var wasServed = false

    mutating func workerCame() {
        workers += 1
        wasServed = true
        isUnserved = false
    }

    /// - Returns: Number of the absence that begins; nil if another worker serves it.
    mutating func workerLeft() -> Int? {
        workers -= 1
        return workers == 0 ? isAwaited() : nil
    }

    /// - Returns: Number of the absence that begins.
    mutating func isAwaited() -> Int {
        isUnserved = false
        absence += 1
        return absence
    }

    /// Handles the end of an absence's waiting time.
    mutating func absenceEnded(_ number: Int) {
        if workers == 0, absence == number { isUnserved = true }
    }
}
