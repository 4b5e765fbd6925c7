internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// Keeps a broker and its workers alive, and ends them in order. It sleeps unless one of them dies or a setting
/// changes.
///
/// `serving -> draining -> killing`, and from each the end, when all children are gone after a signal. The broker is
/// told first, so that it can finish what runs in the workers, which are told when it is gone.
final class Supervisor {
    /// What is to be run.
    struct Plan {
        let folder: RuntimeFolder
        /// What a first broker and first workers run.
        let program: ChildProgram
        /// Arguments of the broker, and of each worker, behind the program's name.
        let broker: [String]
        let worker: [String]
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
    var workersTakenIn = 0
    /// Whether a broker has served.
    private(set) var isReady = false
    private let signals: SignalSource
    private var failure: (any Error)?

    init(_ plan: Plan, _ settings: Settings) throws(SystemError) {
        self.plan = plan
        self.settings = settings
        service = plan.service
        SignalSource.ignoreBrokenPipes()
        signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
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
        for post in posts { try start(post) }
        tellService()
        try loop.run()
        FailureReport(plan.folder).remove()
        if let failure { throw failure }
    }

    /// How long children that shall end may finish what they run.
    var drainTime: Duration { .milliseconds(settings[.drainSeconds] ?? 0) }

    // MARK: Children

    private func start(_ post: Post) throws(SystemError) {
        let secret = try InheritedPipe.holding(plan.secret)
        defer { close(secret) }
        switch post.role {
        case .broker: try startBroker(post, secret: secret)
        case .worker:
            let slots = settings[.slots].map { ["--slots", String($0)] } ?? []
            try start(post, plan.worker + slots, secret: secret, inheriting: [])
        }
    }

    private func startBroker(_ post: Post, secret: Int32) throws(SystemError) {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in brokerSaid(line) }
        var arguments = plan.broker + ["--supervisor-fd", String(ends.child)]
        if isReady {
            // The workers outlived the last one, and tell the next what they hold of it.
            let living = posts.count { $0.role == .worker && $0.child != nil }
            try start(
                post, arguments + ["--expected-workers", String(living)], secret: secret, inheriting: [ends.child])
        } else {
            let pipe = try InheritedPipe.make()
            defer { close(pipe.writer) }
            arguments += ["--ready-fd", String(pipe.writer)]
            do throws(SystemError) {
                try start(post, arguments, secret: secret, inheriting: [ends.child, pipe.writer])
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
        channel.send(settings.lines + [Settings.end] + failures.map(\.line) + [ChildFailure.end])
        self.channel = channel
        owesFailures = false
        unansweredSettings = 0
        owesSettings = false
    }

    private func start(
        _ post: Post, _ arguments: [String], secret: Int32, inheriting inherited: [Int32]
    ) throws(SystemError) {
        let family = ["--secret-fd", String(secret), "--parent-pid", String(getpid())]
        // After a death never a copy: whoever caused it knows where a copy has what in its memory.
        let program = post.lastExit == nil ? plan.program : .thisFile
        let child = try program.start(["earshot"] + arguments + family, inheriting: [secret] + inherited)
        post.child = child
        post.started = LoopTime.read()
        post.registration = try loop.add(child.descriptor, .readable) { [unowned self] _ in ended(post) }
        if post.role == .worker { boundMemory(of: child) }
        watchForGoodLife(post)
    }

    /// Tells once that the broker serves. Its end before that closes the pipe as well.
    private func awaitReady(_ reader: Int32) throws(SystemError) {
        var registration: EventLoop.Registration?
        registration = try loop.add(reader, .readable) { [unowned self] _ in
            if let registration { loop.remove(registration) }
            var byte: UInt8 = 0
            if unsafe read(reader, &byte, 1) == 1, !isReady {
                isReady = true
                onReady()
                tellService()
            }
            close(reader)
        }
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
            if post.role == .broker { stopWorkers() }
            endIfAlone()
        case .serving:
            guard !post.isLeaving else {
                forget(post)
                return
            }
            // A broker that never served has said why; a folder that is unfit will be unfit a second later.
            if post.role == .broker, !isReady, exit == .code(ExitStatus.cannotServe.rawValue) {
                failure = Complaint(.cannotServe)
                kill()
                return
            }
            let pause = died(
                post, after: LoopTime.read().since(post.started),
                "\(post.role.name) (\(child.pid)) ended with \(exit)")
            loop.setTimer(after: pause) { [unowned self] in restart(post) }
        }
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
