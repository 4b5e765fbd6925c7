internal import EarshotLoop

/// Times at which the broker looks at the memory that is left, and returns free memory to the system.
final class MemoryUpkeep {
    /// Number of messages after which free memory is returned to the system, and the delay of that.
    static let burstMessages = 10_000
    private static let burstEndDelay = Duration.seconds(1)
    /// Time between two looks at the memory that is left. Clients can submit some MiB of requests meanwhile.
    private static let checkInterval = Duration.milliseconds(10)

    private let loop: EventLoop
    private var nextCheckTime = LoopTime(nanoseconds: 0)
    private var isReturnScheduled = false

    init(on loop: EventLoop) { self.loop = loop }

    /// Whether it is time for a look at the memory that is left.
    func isCheckDue() -> Bool {
        guard loop.now >= nextCheckTime else { return false }
        nextCheckTime = loop.now.advanced(by: Self.checkInterval)
        return true
    }

    /// Sets one timer after a burst of messages, a large removal, or the removal of most records. It returns free
    /// memory to the system.
    ///
    /// - Parameter release: Frees memory before that.
    func scheduleReturn(after release: @escaping () -> Void) {
        guard !isReturnScheduled else { return }
        isReturnScheduled = true
        _ = loop.setTimer(after: Self.burstEndDelay) { [unowned self] in
            isReturnScheduled = false
            release()
            ResourceLimits.returnFreeMemory()
        }
    }
}
