internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// A bus for one run of this program: a supervisor in a folder of its own, ended and removed with it, also when the
/// program is killed.
final class PrivateBus {
    /// How long it may take to come up.
    private static let patience = Duration.seconds(20)
    /// How long it may take to go; it has nothing to finish.
    private static let farewell = Duration.seconds(5)

    let folder: RuntimeFolder
    private let child: ChildProcess
    private let loop: EventLoop

    /// Starts it and waits until it serves.
    ///
    /// - Parameter cache: the folder of its cache; nil for none.
    /// - Throws: `Complaint` when it does not come up, or a signal came first.
    static func start(_ loop: EventLoop, _ signals: SignalSource, workers: Int, cache: String?) throws -> PrivateBus {
        let folder = try makeFolder()
        let (reader, writer) = try InheritedPipe.make()
        defer { close(reader) }
        let arguments =
            [
                "earshot", "serve", "--runtime", folder.path, "--most-workers", String(workers), "--log-level", "error",
                "--ready-fd", String(writer), "--private-to", String(getpid()), "--no-durable",
            ] + (cache.map { ["--cache-folder", $0] } ?? ["--no-cache"])
        let child = try ChildProcess.spawn("/proc/self/exe", arguments, inheriting: [writer])
        close(writer)
        let bus = PrivateBus(folder, child, loop)
        var isReady = false
        var isOver = false
        let registrations = [
            try loop.add(reader, .readable) { _ in
                var byte: UInt8 = 0
                isReady = unsafe read(reader, &byte, 1) == 1
                isOver = true
            },
            try loop.add(signals.descriptor, .readable) { _ in isOver = true },
        ]
        try loop.run(for: patience) { isOver }
        for registration in registrations { loop.remove(registration) }
        guard isReady else {
            // It has said what is wrong with the settings.
            if bus.end() == .code(ExitStatus.configuration.rawValue) { throw Complaint(.configuration) }
            throw signals.next() == nil
                ? Complaint(.noBroker, "no broker runs, and a private one did not start") : Complaint(.interrupted)
        }
        return bus
    }

    private init(_ folder: RuntimeFolder, _ child: ChildProcess, _ loop: EventLoop) {
        self.folder = folder
        self.child = child
        self.loop = loop
    }

    /// Calls `handler` if it dies before it is ended.
    func onDeath(_ handler: @escaping () -> Void) throws {
        var registration: EventLoop.Registration?
        registration = try loop.add(child.descriptor, .readable) { [unowned loop] _ in
            if let registration { loop.remove(registration) }
            handler()
        }
    }

    /// Ends all its processes and removes its folder.
    ///
    /// - Returns: how its supervisor ended.
    @discardableResult
    func end() -> ChildProcess.Exit? {
        child.send(SIGTERM)
        var isOver = false
        do throws(SystemError) {
            let waiting = try EventLoop()
            let registration = try waiting.add(child.descriptor, .readable) { _ in isOver = true }
            try waiting.run(for: PrivateBus.farewell) { isOver }
            waiting.remove(registration)
        } catch {
            Complaint.say("\(error)")
        }
        if !isOver { child.send(SIGKILL) }
        let exit = child.reap()
        Folder.remove(folder.path)
        return exit
    }

    /// A new folder for this user alone, in that for temporary files unless its path is too long for a socket.
    private static func makeFolder() throws -> RuntimeFolder {
        let parents = [unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "", P_tmpdir]
        for parent in parents where !parent.isEmpty && parent.utf8.count <= 80 {
            var template = Array("\(parent)/earshot-XXXXXX".utf8CString)
            if unsafe mkdtemp(&template) != nil {
                return try RuntimeFolder(named: String(decoding: template.dropLast().map(UInt8.init), as: UTF8.self))
            }
        }
        throw Complaint(.noBroker, "no broker runs, and there is no folder for a private one: set TMPDIR")
    }
}
