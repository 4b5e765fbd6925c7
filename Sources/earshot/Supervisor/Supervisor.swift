internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWorker
internal import Glibc
internal import Logging

/// Keeps a broker and its workers alive, and ends them in order. It sleeps unless one of them dies or a setting
/// changes.
///
/// `serving -> draining -> killing`, and from each the end, when all children are gone after a signal. The broker is
/// told first, so that it can finish what runs in the workers, which are told when it is gone.
final class Supervisor {
    /// What is to be run.
    struct Plan {
        let folder: RuntimeFolder
        /// What each broker is told, and each worker, but for what is of one of them alone.
        let broker: BrokerOptions
        let worker: WorkerOptions
        let logLevel: Logger.Level
        /// What proves to a broker whose child a worker is, as both are told.
        let secret: String
        /// Where settings are read again.
        let configuration: Configuration
        /// Whether one process alone uses the bus: then there is nothing to drain.
        let isPrivate: Bool
        /// Who started it and wants to hear of it; nil for nobody.
        let service: ServiceManager?
    }

    enum Phase {
        case serving
        case draining
        case killing
    }

    /// Beyond the time for draining, until what is left is killed.
    static let drainReserve = Duration.seconds(3)
    /// Until a private bus is killed that does not end.
    static let privateFarewell = Duration.seconds(2)

    /// Called once, when programs can connect.
    var onReady: () -> Void = {}

    let plan: Plan
    let loop: EventLoop
    /// What holds now, with what clients have set: each broker starts with it.
    var settings: Settings
    /// To the broker that runs.
    var channel: LineChannel?
    /// Settings that the broker was told and has not answered: what it says meanwhile was set before.
    var unansweredSettings = 0
    /// Whether it is to be told once it takes something.
    var owesSettings = false
    var posts: [Post]
    private(set) var phase = Phase.serving
    /// Whether the broker is to be told of failures once it takes something.
    var owesFailures = false
    var generator = SystemRandomNumberGenerator()
    let service: ServiceManager?
    /// What the service manager was told: its readiness, the last line for people, a reload that has not ended.
    var isServiceReady = false
    var toldState = ""
    var isReloading = false
    /// Workers that the broker says it has taken in.
    var workersTakenIn = 0 {
        didSet {
            guard workersTakenIn > 0, !hasHadWorkers else { return }
            hasHadWorkers = true
            sayReady()
        }
    }
    /// Whether a broker has served.
    private(set) var isReady = false
    /// Whether a broker has taken in a worker.
    private var hasHadWorkers = false
    private var hasSaidReady = false
    private let signals: SignalSource
    private var failure: (any Error)?

    /// - Parameter signals: SIGTERM, SIGINT and SIGHUP.
    init(_ plan: Plan, _ settings: Settings, _ signals: SignalSource) throws(SystemError) {
        self.plan = plan
        self.settings = settings
        self.signals = signals
        service = plan.service
        loop = try EventLoop()
        posts = [Post(.broker)] + (0..<(settings[.workers] ?? 1)).map { _ in Post(.worker) }
    }

    /// Supervises until a signal ends it and all children are gone.
    func run() throws {
        let registration = try loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while let signal = signals.next() {
                if signal == SIGHUP { readSettings() } else { signalled() }
            }
        }
        defer { loop.remove(registration) }
        FailureReport(plan.folder).remove()
        // Of two copies of this process the worker has more to do until it can be of use.
        for post in plan.isPrivate ? posts.reversed() : posts { try start(post) }
        tellService()
        try loop.run()
        FailureReport(plan.folder).remove()
        if let failure { throw failure }
    }

    /// How long children that shall end may finish what they run.
    var drainTime: Duration { .milliseconds(settings[.drainSeconds] ?? 0) }

    // MARK: Children

    private func start(_ post: Post) throws(SystemError) {
        switch post.role {
        case .broker: try startBroker(post)
        case .worker:
            var options = plan.worker
            if let slots = settings[.slots] { options.slots = slots }
            try start(post, .worker(options), inheriting: [])
        }
    }

    private func startBroker(_ post: Post) throws(SystemError) {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in brokerSaid(line) }
        var options = plan.broker
        options.supervisorDescriptor = ends.child
        // For a copy; another process is told.
        options.settings = settings
        let isCopy: Bool
        if isReady {
            // The workers outlived the last one, and tell the next what they hold of it.
            options.expectedWorkers = posts.count { $0.role == .worker && $0.child != nil }
            isCopy = try start(post, .broker(options), inheriting: [ends.child])
        } else {
            let pipe = try InheritedPipe.make()
            defer { close(pipe.writer) }
            options.readyDescriptor = pipe.writer
            do throws(SystemError) {
                isCopy = try start(post, .broker(options), inheriting: [ends.child, pipe.writer])
                try awaitReady(pipe.reader)
            } catch {
                close(pipe.reader)
                throw error
            }
        }
        channel.onRoom = { [unowned self] in
            if owesSettings { tellSettings() }
            if owesFailures { tellFailures() }
        }
        if !isCopy { channel.send(settings.lines + [Settings.end]) }
        channel.send(failures.map(\.line) + [ChildFailure.end])
        self.channel = channel
        owesFailures = false
        unansweredSettings = 0
        owesSettings = false
    }

    /// - Returns: whether the child is a copy of this process.
    @discardableResult
    private func start(_ post: Post, _ run: ChildRun, inheriting inherited: [Int32]) throws(SystemError) -> Bool {
        var copy: ChildProcess?
        // A private bus has to be there soon; another one lives long, and has no two processes alike. After a death
        // never a copy: whoever caused it knows where a copy has what in its memory.
        if plan.isPrivate, post.lastExit == nil {
            copy = try ChildProcess.fork(inheriting: inherited) { [level = plan.logLevel] in
                ExitStatus.concluding { try run.run(level) }.rawValue
            }
        }
        let child = if let copy { copy } else { try program(run, inheriting: inherited) }
        post.child = child
        post.started = LoopTime.read()
        post.registration = try loop.add(child.descriptor, .readable) { [unowned self] _ in ended(post) }
        if post.role == .worker { boundMemory(of: child) }
        watchForGoodLife(post)
        return copy != nil
    }

    /// Starts this program anew.
    private func program(_ run: ChildRun, inheriting inherited: [Int32]) throws(SystemError) -> ChildProcess {
        let secret = try InheritedPipe.holding(plan.secret)
        defer { close(secret) }
        let arguments = run.arguments(in: plan.folder, secret: secret, plan.logLevel)
        return try ChildProcess.spawn(ChildProcess.thisProgram, arguments, inheriting: [secret] + inherited)
    }

    /// Tells once that the broker serves. Its end before that closes the pipe as well.
    private func awaitReady(_ reader: Int32) throws(SystemError) {
        var registration: EventLoop.Registration?
        registration = try loop.add(reader, .readable) { [unowned self] _ in
            if let registration { loop.remove(registration) }
            var byte: UInt8 = 0
            if unsafe read(reader, &byte, 1) == 1, !isReady {
                isReady = true
                sayReady()
                tellService()
            }
            close(reader)
        }
    }

    /// Says once that programs can connect, and have their URLs fetched. The owner of a private bus goes on while its
    /// workers start.
    private func sayReady() {
        guard isReady, !hasSaidReady, hasHadWorkers || plan.isPrivate else { return }
        hasSaidReady = true
        onReady()
    }

    private func ended(_ post: Post) {
        guard let child = post.child, let exit = child.reap() else { return }
        if let registration = post.registration { loop.remove(registration) }
        for timer in [post.timer, post.goodLife].compactMap(\.self) { loop.cancelTimer(timer) }
        post.goodLife = nil
        post.lastExit = exit
        post.child = nil
        post.registration = nil
        if post.role == .broker {
            // What it was answered for is what the next one starts with.
            channel?.takeLines()
            channel = nil
            workersTakenIn = 0
            tellService()
        }
        switch phase {
        case .draining, .killing:
            if post.role == .broker {
                stopWorkers()
                // While workers that are killed go. What the last call of one may still add goes at the end.
                if plan.isPrivate { Folder.remove(plan.folder.path) }
            }
            endIfAlone()
        case .serving:
            guard !post.isLeaving else {
                forget(post)
                return
            }
            if let status = permanentFault(exit, of: post.role) {
                failure = Complaint(status)
                kill()
                return
            }
            let pause = died(
                post, after: LoopTime.read().since(post.started),
                "\(post.role.name) (\(child.pid)) ended with \(exit)")
            loop.setTimer(after: pause) { [unowned self] in restart(post) }
        }
    }

    /// Returns the status of a child that no restart can help; it has said why. Before the first one has served, an unfit
    /// folder is permanent; later it may be mended. A table of a newer version stays one.
    private func permanentFault(_ exit: ChildProcess.Exit, of role: Post.Role) -> ExitStatus? {
        if role == .broker, exit == .code(ExitStatus.configuration.rawValue) { return .configuration }
        let hasServed = role == .broker ? isReady : hasHadWorkers
        return !hasServed && exit == .code(ExitStatus.cannotServe.rawValue) ? .cannotServe : nil
    }

    /// Fills a post, now or as soon as that can be done.
    func restart(_ post: Post) {
        guard phase == .serving, !post.isLeaving else { return }
        do throws(SystemError) {
            try start(post)
        } catch {
            let pause = died(post, after: .zero, "\(post.role.name) cannot be started: \(error)")
            loop.setTimer(after: max(pause, RestartRule.shortestPause)) { [unowned self] in restart(post) }
        }
    }

    // MARK: The end

    private func signalled() {
        switch phase {
        case .serving where !plan.isPrivate:
            phase = .draining
            for post in posts where post.role == .broker { post.child?.send(SIGTERM) }
            // A broker between two lives has nothing to finish.
            if !posts.contains(where: { $0.role == .broker && $0.child != nil }) {
                for post in posts { post.child?.send(SIGTERM) }
            }
            loop.setTimer(after: drainTime + Self.drainReserve) { [unowned self] in kill() }
            stopBegan(limit: drainTime + Self.drainReserve)
            endIfAlone()
        case .serving:
            // Nobody waits for anything; what the broker has to keep for later it keeps. Two signals: it stops at once.
            phase = .killing
            for post in posts {
                guard post.role == .broker else {
                    post.child?.send(SIGKILL)
                    continue
                }
                post.child?.send(SIGTERM)
                post.child?.send(SIGINT)
            }
            loop.setTimer(after: Self.privateFarewell) { [unowned self] in kill() }
            endIfAlone()
        case .draining: kill()
        case .killing: break
        }
    }

    /// The broker has ended, and no other follows: what a worker still fetches is for nobody. Two signals: it stops at
    /// once.
    private func stopWorkers() {
        for post in posts where post.role == .worker {
            post.child?.send(SIGTERM)
            post.child?.send(SIGINT)
        }
    }

    private func kill() {
        phase = .killing
        for post in posts { post.child?.send(SIGKILL) }
        endIfAlone()
    }

    private func endIfAlone() {
        if posts.allSatisfy({ $0.child == nil }) { loop.stop() }
    }
}
