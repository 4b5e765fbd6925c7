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
/// `RemovalWatch` delivers notices of the kernel, so an idle broker does not wake up for checks. Without it, a loss is noticed
/// at the next use.
final class PathWatch {
    /// One folder or socket.
    struct WatchedPath {
        let name: String
        let path: String
        let isInPlace: () -> Bool
        /// Returns the reason why a place that exists cannot be used; nil if it can.
        var obstacle: () -> String? = { nil }
        let makeAgain: () throws -> Void
    }

    /// Delay between a notice and the check, so that a recursive removal of a folder is complete.
    private static let debounceTime = Duration.milliseconds(100)
    /// Interval between two attempts to create a lost place.
    private static let pause = Duration.seconds(2)

    private let watchedPaths: [WatchedPath]
    private let loop: EventLoop
    private let logger: Logger
    private let watch: RemovalWatch?
    private let watchAll: ((RemovalWatch) -> Void)?
    private let onChange: ([PathFault]) -> Void
    /// Faults in the order in which the places were first lost.
    private var faults: [PathFault] = []
    private var registration: EventLoop.Registration?
    private var isTimerSet = false

    /// - Parameters:
    ///   - watchedPaths: Places in the order in which they can be created.
    ///   - watchAll: Watches all places; nil for no watch. Called again after each change.
    ///   - onChange: Called with all faults after a change.
    init(
        _ watchedPaths: [WatchedPath], loop: EventLoop, logger: Logger, watchAll: ((RemovalWatch) -> Void)?,
        onChange: @escaping ([PathFault]) -> Void
    ) throws(SystemError) {
        self.watchedPaths = watchedPaths
        self.loop = loop
        self.logger = logger
        self.watchAll = watchAll
        self.onChange = onChange
        do throws(SystemError) {
            watch = try watchAll.map { _ throws(SystemError) in try RemovalWatch() }
        } catch {
            logger.warning(
                "cannot watch for removed folders; a loss is noticed at the next use", metadata: ["error": "\(error)"])
            watch = nil
        }
        guard let watch else { return }
        watchAll?(watch)
        registration = try loop.add(watch.descriptor, .readable) { [unowned self] _ in
            watch.takeNotices()
            look(after: Self.debounceTime)
        }
    }

    deinit { if let registration { loop.remove(registration) } }

    private func look(after pause: Duration) {
        guard !isTimerSet else { return }
        isTimerSet = true
        _ = loop.setTimer(after: pause) { [weak self] in
            self?.isTimerSet = false
            self?.look()
        }
    }

    /// Checks all places and creates lost ones again.
    ///
    /// - Returns: Whether a place was created.
    @discardableResult
    func look() -> Bool {
        let before = faults
        var isMade = false
        for place in watchedPaths {
            guard !place.isInPlace() else {
                if let obstacle = place.obstacle() {
                    let isFirst = lose(place)
                    fail(place, obstacle, "a place of the broker cannot be written", isFirst: isFirst)
                } else {
                    pathFound(place)
                }
                continue
            }
            let isFirst = lose(place)
            do {
                try place.makeAgain()
                isMade = true
                pathFound(place)
                logger.warning(
                    "a place of the broker was removed or replaced, and is created again",
                    metadata: ["path": "\(place.path)", "place": "\(place.name)"])
            } catch {
                let message = "a place of the broker was removed or replaced, and cannot be created again"
                fail(place, "\(error)", message, isFirst: isFirst)
            }
        }
        if isMade, let watch { watchAll?(watch) }
        if faults != before { onChange(faults) }
        if faults.contains(where: { $0.reason != nil }) { look(after: Self.pause) }
        return isMade
    }

    /// Records a loss, unless it is already recorded.
    ///
    /// - Returns: Whether the loss is new.
    private func lose(_ place: WatchedPath) -> Bool {
        guard let index = index(of: place) else {
            faults.append(
                PathFault(place: place.name, path: place.path, count: 1, last: CalendarTime.now(), reason: ""))
            return true
        }
        guard faults[index].reason == nil else { return false }
        faults[index].count += 1
        faults[index].last = CalendarTime.now()
        faults[index].reason = ""
        return true
    }

    private func pathFound(_ place: WatchedPath) {
        if let index = index(of: place) { faults[index].reason = nil }
    }

    private func fail(_ place: WatchedPath, _ reason: String, _ message: String, isFirst: Bool) {
        guard let index = index(of: place) else { return }
        if isFirst || faults[index].reason != reason {
            logger.error(
                "\(message)", metadata: ["error": "\(reason)", "path": "\(place.path)", "place": "\(place.name)"])
        }
        faults[index].reason = reason
    }

    private func index(of place: WatchedPath) -> Int? { faults.firstIndex { $0.place == place.name } }
}
