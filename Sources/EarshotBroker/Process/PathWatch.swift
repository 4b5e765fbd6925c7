internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// The folders and sockets of the broker. Those that were removed or replaced are created again.
///
/// ```
/// in place → lost (a notice, or a failed use) → in place (created again, or writable again)
///                                             → lost (cannot be created or written; retried after a pause)
/// ```
///
/// `RemovalWatch` delivers notices of the kernel, so an idle broker does not wake up for checks. Without it, a loss is
/// noticed at the next use.
final class PathWatch {
    /// One folder or socket.
    struct WatchedPath {
        let name: String
        let path: String
        let isInPlace: () -> Bool
        /// Returns the reason why a place that exists cannot be used; nil if it can.
        var unusableReason: () -> String? = { nil }
        let recreatePath: () throws -> Void
    }

    /// Delay between a notice and the check, so that a recursive removal of a folder is complete.
    private static let debounceTime = Duration.milliseconds(100)
    /// Interval between two attempts to create a lost place.
    private static let retryInterval = Duration.seconds(2)

    private let watchedPaths: [WatchedPath]
    private let loop: EventLoop
    private let logger: Logger
    private let watch: RemovalWatch?
    private let addWatches: ((RemovalWatch) -> Void)?
    private let onChange: ([PathFailure]) -> Void
    /// Faults in the order in which the places were first lost.
    private var faults: [PathFailure] = []
    private var registration: EventLoop.Registration?
    private var isTimerSet = false

    /// - Parameters:
    ///   - watchedPaths: Places in the order in which they can be created.
    ///   - addWatches: Watches all places; nil for no watch. Called again after each change.
    ///   - onChange: Called with all faults after a change.
    init(
        _ watchedPaths: [WatchedPath], loop: EventLoop, logger: Logger, addWatches: ((RemovalWatch) -> Void)?,
        onChange: @escaping ([PathFailure]) -> Void
    ) throws(SystemError) {
        self.watchedPaths = watchedPaths
        self.loop = loop
        self.logger = logger
        self.addWatches = addWatches
        self.onChange = onChange
        do throws(SystemError) {
            watch = try addWatches.map { _ throws(SystemError) in try RemovalWatch() }
        } catch {
            logger.warning(
                "cannot watch for removed folders; a loss is noticed at the next use", metadata: ["error": "\(error)"])
            watch = nil
        }
        guard let watch else { return }
        addWatches?(watch)
        registration = try loop.add(watch.descriptor, .readable) { [unowned self] _ in
            watch.discardPendingEvents()
            scheduleCheck(after: Self.debounceTime)
        }
    }

    deinit { if let registration { loop.remove(registration) } }

    private func scheduleCheck(after pause: Duration) {
        guard !isTimerSet else { return }
        isTimerSet = true
        _ = loop.setTimer(after: pause) { [weak self] in
            self?.isTimerSet = false
            self?.checkPaths()
        }
    }

    /// Checks all places and creates lost ones again.
    ///
    /// - Returns: Whether a place was created.
    @discardableResult
    func checkPaths() -> Bool {
        let before = faults
        var isMade = false
        for place in watchedPaths {
            guard !place.isInPlace() else {
                if let obstacle = place.unusableReason() {
                    let isFirst = recordLoss(of: place)
                    recordFailure(of: place, obstacle, "a place of the broker cannot be written", isFirst: isFirst)
                } else {
                    recordRecovery(of: place)
                }
                continue
            }
            let isFirst = recordLoss(of: place)
            do {
                try place.recreatePath()
                isMade = true
                recordRecovery(of: place)
                logger.warning(
                    "a place of the broker was removed or replaced, and is created again",
                    metadata: ["path": "\(place.path)", "place": "\(place.name)"])
            } catch {
                let message = "a place of the broker was removed or replaced, and cannot be created again"
                recordFailure(of: place, "\(error)", message, isFirst: isFirst)
            }
        }
        if isMade, let watch { addWatches?(watch) }
        if faults != before { onChange(faults) }
        if faults.contains(where: { $0.failureReason != nil }) { scheduleCheck(after: Self.retryInterval) }
        return isMade
    }

    /// Records a loss, unless it is already recorded.
    ///
    /// - Returns: Whether the loss is new.
    private func recordLoss(of place: WatchedPath) -> Bool {
        guard let index = faultIndex(of: place) else {
            faults.append(
                PathFailure(
                    pathRole: place.name, path: place.path, lossCount: 1, lastDetectedAt: CalendarTime.now(),
                    failureReason: ""))
            return true
        }
        guard faults[index].failureReason == nil else { return false }
        faults[index].lossCount += 1
        faults[index].lastDetectedAt = CalendarTime.now()
        faults[index].failureReason = ""
        return true
    }

    private func recordRecovery(of place: WatchedPath) {
        if let index = faultIndex(of: place) { faults[index].failureReason = nil }
    }

    private func recordFailure(of place: WatchedPath, _ reason: String, _ message: String, isFirst: Bool) {
        guard let index = faultIndex(of: place) else { return }
        if isFirst || faults[index].failureReason != reason {
            logger.error(
                "\(message)", metadata: ["error": "\(reason)", "path": "\(place.path)", "place": "\(place.name)"])
        }
        faults[index].failureReason = reason
    }

    private func faultIndex(of place: WatchedPath) -> Int? { faults.firstIndex { $0.pathRole == place.name } }
}
