internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// The folders and sockets by which others find the broker. Those removed or replaced beneath it are made again.
///
/// ```
/// in place → lost (a notice, or a failed use) → in place (made again)
///                                             → lost (cannot be made; tried again after a pause)
/// ```
///
/// An idle broker does not wake for it: the kernel gives notice (`RemovalWatch`).
final class BrokerPlaces {
    /// One folder or socket.
    struct Place {
        let name: String
        let path: String
        let isInPlace: () -> Bool
        let makeAgain: () throws -> Void
    }

    /// From a notice to the look at all places: whoever removes a folder with all its files is done then.
    private static let settlingTime = Duration.milliseconds(100)
    /// Between two attempts to make a lost place again.
    private static let pause = Duration.seconds(2)

    private let places: [Place]
    private let loop: EventLoop
    private let logger: Logger
    private let watch: RemovalWatch?
    private let watchAll: (RemovalWatch) -> Void
    private let onChange: ([PlaceFault]) -> Void
    /// In the order in which places were lost first.
    private var faults: [PlaceFault] = []
    private var registration: EventLoop.Registration?
    private var isTimerSet = false

    /// - Parameters:
    ///   - places: in the order in which they can be made.
    ///   - watchAll: puts all of them under watch, again after each change.
    ///   - onChange: called with all faults when one of them changed.
    init(
        _ places: [Place], loop: EventLoop, logger: Logger, watchAll: @escaping (RemovalWatch) -> Void,
        onChange: @escaping ([PlaceFault]) -> Void
    ) throws(SystemError) {
        self.places = places
        self.loop = loop
        self.logger = logger
        self.watchAll = watchAll
        self.onChange = onChange
        do throws(SystemError) {
            watch = try RemovalWatch()
        } catch {
            // Then a loss is noticed at the next use of the spool only.
            logger.warning("removed folders are not noticed at once", metadata: ["reason": "\(error)"])
            watch = nil
        }
        guard let watch else { return }
        watchAll(watch)
        registration = try loop.add(watch.descriptor, .readable) { [unowned self] _ in
            watch.takeNotices()
            look(after: Self.settlingTime)
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

    /// Looks at all places, and makes lost ones again.
    /// - Returns: whether one was made again.
    @discardableResult
    func look() -> Bool {
        let before = faults
        var isMade = false
        for place in places {
            guard !place.isInPlace() else {
                found(place)
                continue
            }
            let isNews = lose(place)
            do {
                try place.makeAgain()
                isMade = true
                found(place)
                logger.warning(
                    "\(place.path) was removed or replaced, and is made again", metadata: ["place": "\(place.name)"])
            } catch {
                fail(place, "\(error)", isNews: isNews)
            }
        }
        if isMade, let watch { watchAll(watch) }
        if faults != before { onChange(faults) }
        if faults.contains(where: { $0.reason != nil }) { look(after: Self.pause) }
        return isMade
    }

    /// Counts a loss, unless it was counted.
    /// - Returns: whether it is a new one.
    private func lose(_ place: Place) -> Bool {
        guard let index = index(of: place) else {
            faults.append(
                PlaceFault(place: place.name, path: place.path, count: 1, last: CalendarTime.now(), reason: ""))
            return true
        }
        guard faults[index].reason == nil else { return false }
        faults[index].count += 1
        faults[index].last = CalendarTime.now()
        faults[index].reason = ""
        return true
    }

    private func found(_ place: Place) {
        if let index = index(of: place) { faults[index].reason = nil }
    }

    private func fail(_ place: Place, _ reason: String, isNews: Bool) {
        guard let index = index(of: place) else { return }
        if isNews || faults[index].reason != reason {
            logger.error(
                "\(place.path) was removed or replaced, and cannot be made again: \(reason)",
                metadata: ["place": "\(place.name)"])
        }
        faults[index].reason = reason
    }

    private func index(of place: Place) -> Int? { faults.firstIndex { $0.place == place.name } }
}
