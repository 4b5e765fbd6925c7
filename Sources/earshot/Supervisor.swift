internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Keeps a broker and its workers alive, and ends them in order. It sleeps unless one of them dies.
///
/// `serving -> draining -> killing`, and from each the end, when all children are gone after a signal. The broker is
/// told first, so that it can finish what runs in the workers, which are told when it is gone.
final class Supervisor {
    /// What is to be run.
    struct Plan {
        let folder: RuntimeFolder
        /// Arguments of the broker, and of each worker, behind the program's name.
        let broker: [String]
        let worker: [String]
        let workers: Int
        let secret: String
        let drainSeconds: Double
        /// Whether one process alone uses the bus: then there is nothing to drain.
        let isPrivate: Bool
    }

    private enum Phase {
        case serving
        case draining
        case killing
    }

    private enum Role: Equatable {
        case broker
        case worker
    }

    /// A place for a child, filled again when the child dies.
    private final class Post {
        let role: Role
        var child: ChildProcess?
        var registration: EventLoop.Registration?
        var started = LoopTime.read()
        var delay = RestartDelay()

        init(_ role: Role) {
            self.role = role
        }
    }

    /// Beyond the broker's own limit for draining, until what is left is killed.
    private static let drainReserve = Duration.seconds(3)

    /// Called once, when programs can connect.
    var onReady: () -> Void = {}

    private let plan: Plan
    private let loop: EventLoop
    private let signals: SignalSource
    private let posts: [Post]
    private var phase = Phase.serving
    private var isReady = false
    private var failure: (any Error)?

    init(_ plan: Plan) throws(SystemError) {
        self.plan = plan
        SignalSource.ignoreBrokenPipes()
        signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        loop = try EventLoop()
        posts = [Post(.broker)] + (0..<plan.workers).map { _ in Post(.worker) }
    }

    /// Supervises until a signal ends it and all children are gone.
    func run() throws {
        let registration = try loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while signals.next() != nil { signalled() }
        }
        defer { loop.remove(registration) }
        for post in posts { try start(post) }
        try loop.run()
        if let failure { throw failure }
    }

    private func start(_ post: Post) throws(SystemError) {
        let secret = try InheritedPipe.holding(plan.secret)
        defer { close(secret) }
        var arguments = post.role == .broker ? plan.broker : plan.worker
        arguments += ["--secret-fd", String(secret), "--parent-pid", String(getpid())]
        var inherited = [secret]
        var ready: (reader: Int32, writer: Int32)?
        if post.role == .broker, !isReady {
            let pipe = try InheritedPipe.make()
            arguments += ["--ready-fd", String(pipe.writer)]
            inherited.append(pipe.writer)
            ready = pipe
        }
        defer { if let ready { close(ready.writer) } }
        // The workers outlived the last one, and tell the next what they hold of it.
        if post.role == .broker, isReady { arguments += ["--expected-workers", String(plan.workers)] }
        let child = try ChildProcess.spawn("/proc/self/exe", ["earshot"] + arguments, inheriting: inherited)
        post.child = child
        post.started = LoopTime.read()
        post.registration = try loop.add(child.descriptor, .readable) { [unowned self] _ in ended(post) }
        if let ready { try awaitReady(ready.reader) }
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
            }
            close(reader)
        }
    }

    private func ended(_ post: Post) {
        guard let child = post.child, let exit = child.reap() else { return }
        if let registration = post.registration { loop.remove(registration) }
        post.child = nil
        post.registration = nil
        switch phase {
        case .draining, .killing:
            if post.role == .broker { for post in posts where post.role == .worker { post.child?.send(SIGTERM) } }
            endIfAlone()
        case .serving:
            let delay = post.delay.lifeEnded(after: LoopTime.read().since(post.started))
            // A broker that never served has said why; a folder that is unfit will be unfit a second later.
            if post.role == .broker, !isReady, exit == .code(ExitStatus.cannotServe.rawValue) {
                failure = Complaint(.cannotServe)
                kill()
                return
            }
            let name = post.role == .broker ? "the broker" : "a worker"
            if exit != .code(0) || !plan.isPrivate {
                let pause = delay == .zero ? "" : " in \(delay)"
                Complaint.say("\(name) (\(child.pid)) ended with \(exit), starting another\(pause)")
            }
            loop.setTimer(after: delay) { [unowned self] in restart(post) }
        }
    }

    private func restart(_ post: Post) {
        guard phase == .serving else { return }
        do throws(SystemError) {
            try start(post)
        } catch {
            let delay = post.delay.lifeEnded(after: .zero)
            Complaint.say("cannot start a child: \(error)")
            loop.setTimer(after: max(delay, RestartDelay.shortest)) { [unowned self] in restart(post) }
        }
    }

    private func signalled() {
        switch phase {
        case .serving where !plan.isPrivate:
            phase = .draining
            for post in posts where post.role == .broker { post.child?.send(SIGTERM) }
            // A broker between two lives has nothing to finish.
            if !posts.contains(where: { $0.role == .broker && $0.child != nil }) {
                for post in posts { post.child?.send(SIGTERM) }
            }
            loop.setTimer(after: .seconds(plan.drainSeconds) + Self.drainReserve) { [unowned self] in kill() }
            endIfAlone()
        case .serving, .draining: kill()
        case .killing: break
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
