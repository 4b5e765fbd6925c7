internal import CLinux
internal import Glibc

/// Single-threaded event loop: descriptors through epoll, timers, and hooks at the end of each pass.
///
/// A pass waits, reads the clock, then calls the handlers of ready descriptors, of due timers, and the hooks. Input is
/// therefore handled before timeouts, even after the process was stopped for a while. ``run()`` makes all calls in
/// sequence and never nests them. A handler may add and remove registrations, timers and hooks, including its own. An
/// idle loop does not wake.
///
/// Not `Sendable`: another thread reaches a loop only through a ``Mailbox``.
@safe public final class EventLoop {
    /// Events that a registration waits for.
    public struct Interest: OptionSet, Sendable {
        public let rawValue: UInt32
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        public static let readable = Interest(rawValue: EPOLLIN.rawValue)
        public static let writable = Interest(rawValue: EPOLLOUT.rawValue)
        /// The peer of a stream has ended its output. Unlike `readable`, unread input does not report it.
        public static let peerClosedOutput = Interest(rawValue: EPOLLRDHUP.rawValue)
    }

    /// Events that a descriptor is ready for. Level-triggered: reported again in each pass until handled.
    public struct Readiness: OptionSet, Sendable {
        public let rawValue: UInt32
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        public static let readable = Readiness(rawValue: EPOLLIN.rawValue)
        public static let writable = Readiness(rawValue: EPOLLOUT.rawValue)
        public static let peerClosedOutput = Readiness(rawValue: EPOLLRDHUP.rawValue)
        /// An error is pending. Reported regardless of the interest.
        public static let error = Readiness(rawValue: EPOLLERR.rawValue)
        /// The peer has closed the connection. Reported regardless of the interest.
        public static let hangUp = Readiness(rawValue: EPOLLHUP.rawValue)
    }

    /// Handle of a registered descriptor. Stale once removed.
    public struct Registration: Hashable, Sendable {
        fileprivate let slot: UInt32
        fileprivate let generation: UInt32

        fileprivate var epollKey: UInt64 { UInt64(generation) << 32 | UInt64(slot) }
    }

    /// Limit that a hook sets on the next sleep.
    public enum SleepLimit: Equatable, Sendable {
        /// No limit: sleep until an event or timer.
        case untilEvent
        /// Sleep until this time at the latest.
        case until(LoopTime)
        /// Work is pending that no descriptor reports: poll the descriptors without sleeping.
        case noSleep
    }

    /// Handle of an added hook.
    public struct HookID: Hashable, Sendable {
        fileprivate let number: UInt64
    }

    private struct Slot {
        var generation: UInt32 = 0
        var descriptor: Int32 = -1
        var handler: ((Readiness) -> Void)?
    }

    /// Maximum number of events taken from the kernel per call.
    private static let maximumEventsPerWait = 256

    /// Time at which this pass began.
    public var now: LoopTime { passTime }
    /// Value of ``now``. Accesses to a public stored property have exclusivity checks at run time.
    private var passTime = LoopTime.readClock()

    private let epollDescriptor: Int32
    private let eventBuffer: UnsafeMutablePointer<epoll_event>
    private var slots: [Slot] = []
    private var freeSlots: [UInt32] = []
    private var registrationsByDescriptor: [Int32: Registration] = [:]
    private var timers = TimerQueue()
    private var hooks: [(id: HookID, call: () -> SleepLimit)] = []
    private var lastHookNumber: UInt64 = 0
    private var isPassRequested = false
    private var isStopping = false
    private var isRunning = false

    /// - Throws: `SystemError` if no descriptor is available.
    public init() throws(SystemError) {
        epollDescriptor = epoll_create1(Int32(EPOLL_CLOEXEC))
        unsafe eventBuffer = .allocate(capacity: EventLoop.maximumEventsPerWait)
        guard epollDescriptor >= 0 else { throw SystemError("epoll_create1") }
    }

    deinit {
        if epollDescriptor >= 0 { close(epollDescriptor) }
        unsafe eventBuffer.deallocate()
    }

    // MARK: Descriptors

    /// Calls `handler` in each pass in which `descriptor` is ready for one of `interest`. The caller owns the
    /// descriptor, and removes the registration before closing it.
    ///
    /// A library may close a descriptor without notice, and reuse its number. Adding a registered number again
    /// therefore ends the old registration.
    public func add(
        _ descriptor: Int32, _ interest: Interest, _ handler: @escaping (Readiness) -> Void
    ) throws(SystemError) -> Registration {
        if let old = registrationsByDescriptor.removeValue(forKey: descriptor) { freeSlot(of: old) }
        let slot = freeSlots.popLast() ?? UInt32(slots.count)
        if slot == slots.count { slots.append(Slot()) }
        let registration = Registration(slot: slot, generation: slots[Int(slot)].generation)
        slots[Int(slot)].descriptor = descriptor
        slots[Int(slot)].handler = handler
        do throws(SystemError) {
            try updateEpoll(descriptor, registration, interest)
        } catch {
            freeSlot(of: registration)
            throw error
        }
        registrationsByDescriptor[descriptor] = registration
        return registration
    }

    /// Changes the interest. An empty interest still reports errors and hang-ups.
    public func changeInterest(of registration: Registration, to interest: Interest) throws(SystemError) {
        guard isActive(registration) else { return }
        try updateEpoll(slots[Int(registration.slot)].descriptor, registration, interest)
    }

    /// Ends a registration. Its handler is not called again, not even for events this pass has already taken from the
    /// kernel. No effect if it has already ended.
    public func remove(_ registration: Registration) {
        guard isActive(registration) else { return }
        let descriptor = slots[Int(registration.slot)].descriptor
        registrationsByDescriptor[descriptor] = nil
        freeSlot(of: registration)
        // ENOENT and EBADF: the descriptor was closed first, which took it out of epoll.
        linux_epoll_control(epollDescriptor, EPOLL_CTL_DEL, descriptor, 0, 0)
    }

    // MARK: Timers and hooks

    /// Calls `handler` once, in the first pass at or after `deadline`. A timer set during a pass does not fire in that
    /// pass, so that a timer which rearms itself cannot block the loop.
    @discardableResult
    public func setTimer(at deadline: LoopTime, _ handler: @escaping () -> Void) -> TimerID {
        timers.insert(deadline: deadline, handler: handler)
    }

    /// Calls `handler` once, `delay` after ``now``.
    @discardableResult
    public func setTimer(after delay: Duration, _ handler: @escaping () -> Void) -> TimerID {
        timers.insert(deadline: now.advanced(by: delay), handler: handler)
    }

    /// Number of timers that are set.
    var timerCount: Int { timers.count }

    /// Cancels a timer. No effect if it has fired or was cancelled.
    public func cancelTimer(_ timer: TimerID) { timers.cancel(timer) }

    /// Calls `hook` at the end of each pass and before the first sleep, in the order of addition.
    public func addHook(_ hook: @escaping () -> SleepLimit) -> HookID {
        lastHookNumber += 1
        hooks.append((HookID(number: lastHookNumber), hook))
        return HookID(number: lastHookNumber)
    }

    /// Removes a hook. No effect if it was already removed.
    public func removeHook(_ id: HookID) { hooks.removeAll { $0.id == id } }

    // MARK: Running

    /// Runs passes until ``stop()``.
    public func run() throws(SystemError) {
        _ = try run(until: { false }, deadline: nil)
    }

    /// Runs passes until `isDone` returns true, checked before each sleep, or until ``stop()``.
    ///
    /// - Returns: Last result of `isDone`.
    @discardableResult
    public func run(until isDone: () -> Bool) throws(SystemError) -> Bool {
        try run(until: isDone, deadline: nil)
    }

    /// Runs passes until `isDone` returns true, checked before each sleep, or until `limit` has elapsed, or until
    /// ``stop()``.
    ///
    /// - Returns: Last result of `isDone`.
    @discardableResult
    public func run(for limit: Duration, until isDone: () -> Bool) throws(SystemError) -> Bool {
        try run(until: isDone, deadline: LoopTime.readClock().advanced(by: limit))
    }

    /// Calls the hooks again before the next sleep. For work that arises after the hooks of a pass, as in the condition
    /// of ``run(until:)``.
    public func requestAnotherPass() { isPassRequested = true }

    /// Makes ``run()`` return at the end of this pass.
    public func stop() { isStopping = true }

    private func run(until isDone: () -> Bool, deadline: LoopTime?) throws(SystemError) -> Bool {
        precondition(!isRunning, "an event loop was run from inside one of its own handlers")
        isRunning = true
        defer {
            isRunning = false
            isStopping = false
        }
        passTime = LoopTime.readClock()
        while true {
            let rest = callHooks()
            if isDone() { return true }
            if isStopping { return false }
            if let deadline, now >= deadline { return false }
            try takeReady(sleepMilliseconds(isPassRequested ? .noSleep : rest, deadline: deadline))
            fireTimers()
        }
    }

    /// Returns the maximum sleep in milliseconds, rounded up; -1 without a limit.
    private func sleepMilliseconds(_ rest: SleepLimit, deadline: LoopTime?) -> Int32 {
        var moment = [timers.nextDeadline(), deadline].compactMap(\.self).min()
        switch rest {
        case .noSleep: return 0
        case .until(let other): moment = min(moment ?? other, other)
        case .untilEvent: break
        }
        guard let moment else { return -1 }
        guard moment > now else { return 0 }
        let nanoseconds = UInt64(bitPattern: moment.nanoseconds &- now.nanoseconds)
        return Int32(min((nanoseconds - 1) / 1_000_000 + 1, UInt64(Int32.max)))
    }

    /// Sleeps, then calls the handlers of all ready descriptors.
    private func takeReady(_ milliseconds: Int32) throws(SystemError) {
        var ready = try waitForEvents(milliseconds: milliseconds)
        passTime = LoopTime.readClock()
        dispatchEvents(count: ready)
        var taken = ready
        // The kernel rotates its ready list, so the next call returns other descriptors first.
        while ready == EventLoop.maximumEventsPerWait, taken < registrationsByDescriptor.count {
            ready = try waitForEvents(milliseconds: 0)
            dispatchEvents(count: ready)
            taken += ready
        }
    }

    private func waitForEvents(milliseconds: Int32) throws(SystemError) -> Int {
        var count = unsafe epoll_wait(epollDescriptor, eventBuffer, Int32(EventLoop.maximumEventsPerWait), milliseconds)
        if count < 0, errno == EINTR {
            // A stopped process wakes with EINTR even if events are ready.
            count = unsafe epoll_wait(epollDescriptor, eventBuffer, Int32(EventLoop.maximumEventsPerWait), 0)
        }
        guard count < 0 else { return Int(count) }
        let error = SystemError("epoll_wait")
        guard error.number == EINTR else { throw error }
        return 0
    }

    private func dispatchEvents(count ready: Int) {
        for index in 0..<ready {
            let key = unsafe linux_epoll_data(eventBuffer, Int32(index))
            let registration = Registration(slot: UInt32(truncatingIfNeeded: key), generation: UInt32(key >> 32))
            guard isActive(registration), let handler = slots[Int(registration.slot)].handler else { continue }
            handler(Readiness(rawValue: unsafe linux_epoll_events(eventBuffer, Int32(index))))
        }
    }

    private func fireTimers() {
        let newest = timers.newestSequence
        while let handler = timers.takeDueHandler(now: now, throughSequence: newest) { handler() }
    }

    private func callHooks() -> SleepLimit {
        isPassRequested = false
        let newest = lastHookNumber
        var rest = SleepLimit.untilEvent
        for hook in hooks where hooks.contains(where: { $0.id == hook.id }) {
            switch (hook.call(), rest) {
            case (.noSleep, _), (_, .noSleep): rest = .noSleep
            case (.until(let moment), .until(let other)): rest = .until(min(moment, other))
            case (.until(let moment), .untilEvent): rest = .until(moment)
            case (.untilEvent, _): break
            }
        }
        // A hook added by a hook may have pending work.
        return lastHookNumber == newest ? rest : .noSleep
    }

    private func isActive(_ registration: Registration) -> Bool {
        slots.indices.contains(Int(registration.slot))
            && slots[Int(registration.slot)].generation == registration.generation
    }

    private func freeSlot(of registration: Registration) {
        slots[Int(registration.slot)].generation &+= 1
        slots[Int(registration.slot)].descriptor = -1
        slots[Int(registration.slot)].handler = nil
        freeSlots.append(registration.slot)
    }

    /// Adds the descriptor to epoll, or modifies its entry if it has one.
    private func updateEpoll(
        _ descriptor: Int32, _ registration: Registration, _ interest: Interest
    ) throws(SystemError) {
        let isAdded = registrationsByDescriptor[descriptor] == registration
        let (first, second) = isAdded ? (EPOLL_CTL_MOD, EPOLL_CTL_ADD) : (EPOLL_CTL_ADD, EPOLL_CTL_MOD)
        if linux_epoll_control(epollDescriptor, first, descriptor, interest.rawValue, registration.epollKey) == 0 {
            return
        }
        let error = SystemError("epoll_ctl")
        guard error.number == EEXIST || error.number == ENOENT else { throw error }
        guard linux_epoll_control(epollDescriptor, second, descriptor, interest.rawValue, registration.epollKey) == 0
        else { throw SystemError("epoll_ctl") }
    }
}
