package import EarshotLoop
internal import Glibc

/// Bus for one program: a supervisor with a broker and workers in a folder of its own. It ends with its owner, also
/// when the owner is killed or the starting thread ends.
package final class PrivateBroker {
    /// Event in the life of a private broker.
    package enum Event: Equatable, Sendable {
        /// Clients can connect. Occurs once.
        case ready
        /// Its processes have ended or are ending. The last event.
        case ended
    }

    /// Maximum time for a graceful end before SIGKILL. There is no work to finish.
    private static let gracefulEndTimeout = Duration.seconds(5)

    /// Supervisor of a private broker that was started and is not watched yet.
    package struct StartedSupervisor {
        /// Runtime folder of the broker.
        package let folder: RuntimeFolder
        fileprivate let child: ChildProcess
        /// Readable once clients can connect.
        fileprivate let readyDescriptor: Int32

        /// - Parameter launch: closure that starts the supervisor with a folder and an inherited descriptor for the
        ///   readiness.
        /// - Throws: `ClientError` if there is no folder for it, `SystemError` if it cannot be started.
        package init(_ launch: (RuntimeFolder, Int32) throws(SystemError) -> ChildProcess) throws {
            folder = try PrivateBroker.newFolder()
            let (reader, writer) = try InheritedPipe.make()
            defer { close(writer) }
            readyDescriptor = reader
            do throws(SystemError) {
                child = try launch(folder, writer)
            } catch {
                close(reader)
                throw error
            }
        }

        /// Kills a supervisor that is not watched yet.
        package func terminate() {
            close(readyDescriptor)
            child.killAndReap()
        }
    }

    /// Runtime folder of the broker.
    package let folder: RuntimeFolder
    private let child: ChildProcess
    private let loop: EventLoop
    private let onEvent: (Event) -> Void
    private var readyDescriptor: Int32
    private var loopRegistrations: [EventLoop.Registration] = []

    /// Starts a private broker. Events come from the loop.
    ///
    /// - Parameters:
    ///   - maximumWorkers: maximum number of worker processes; nil for the broker's default.
    ///   - cacheFolder: folder of the cache; nil for no cache.
    ///   - loop: event loop for the events.
    ///   - launch: closure that starts the supervisor.
    ///   - onEvent: closure called for each event.
    /// - Returns: the starting broker.
    /// - Throws: `ClientError` if there is no folder for it, `SystemError` if the program cannot be started.
    package static func start(
        maximumWorkers: Int?, cacheFolder: String?, loop: EventLoop,
        launch: (PrivateStart) throws(SystemError) -> ChildProcess, onEvent: @escaping (Event) -> Void
    ) throws -> PrivateBroker {
        let supervisor = try StartedSupervisor { (folder, readyDescriptor) throws(SystemError) in
            try launch(
                PrivateStart(
                    folder: folder, owner: getpid(), readyDescriptor: readyDescriptor, maximumWorkers: maximumWorkers,
                    cacheFolder: cacheFolder))
        }
        return try PrivateBroker(supervisor, loop: loop, onEvent: onEvent)
    }

    /// Watches a supervisor that was started. Events come from the loop.
    ///
    /// - Throws: `SystemError` if the loop cannot watch it; the supervisor has ended then.
    package init(_ supervisor: StartedSupervisor, loop: EventLoop, onEvent: @escaping (Event) -> Void)
        throws(SystemError)
    {
        folder = supervisor.folder
        child = supervisor.child
        readyDescriptor = supervisor.readyDescriptor
        self.loop = loop
        self.onEvent = onEvent
        do throws(SystemError) {
            let readiness = try loop.add(readyDescriptor, .readable) { [unowned self] _ in readinessReceived() }
            loopRegistrations = [readiness]
            loopRegistrations.append(try loop.add(child.descriptor, .readable) { [unowned self] _ in reportEnded() })
        } catch {
            endAndWait()
            throw error
        }
    }

    /// Ends all processes, waits for them and removes the folder. No event follows. Blocks for up to 10 s.
    ///
    /// - Returns: exit status of the supervisor; nil if it does not end.
    @discardableResult
    package func endAndWait() -> ChildProcess.Exit? {
        stopWatchingSupervisor()
        child.sendSignal(SIGTERM)
        if !waitForSupervisorEnd() {
            child.sendSignal(SIGKILL)
            _ = waitForSupervisorEnd()
        }
        let exit = child.reap()
        PrivateFolder.remove(folder.path)
        return exit
    }

    /// Waits for the end of the supervisor.
    ///
    /// - Returns: false if it still runs after `gracefulEndTimeout`.
    private func waitForSupervisorEnd() -> Bool {
        var entry = pollfd(fd: child.descriptor, events: Int16(POLLIN), revents: 0)
        let deadline = LoopTime.readClock().advanced(by: Self.gracefulEndTimeout)
        while true {
            let left = deadline.since(LoopTime.readClock()) / .milliseconds(1)
            guard left > 0 else { return false }
            if unsafe poll(&entry, 1, Int32(left.rounded(.up))) > 0 { return true }
        }
    }

    private func readinessReceived() {
        var byte: UInt8 = 0
        let isReady = unsafe read(readyDescriptor, &byte, 1) == 1
        loop.remove(loopRegistrations[0])
        close(readyDescriptor)
        readyDescriptor = -1
        // Otherwise the supervisor has ended, which its descriptor reports.
        if isReady { onEvent(.ready) }
    }

    private func reportEnded() {
        stopWatchingSupervisor()
        onEvent(.ended)
    }

    private func stopWatchingSupervisor() {
        for registration in loopRegistrations { loop.remove(registration) }
        loopRegistrations = []
        if readyDescriptor >= 0 { close(readyDescriptor) }
        readyDescriptor = -1
    }

    /// Returns a random, unused folder name in the first suitable folder for temporary files. The supervisor creates
    /// it, so that a killed owner leaves none behind.
    fileprivate static func newFolder() throws(ClientError) -> RuntimeFolder {
        for parent in [Environment.value("TMPDIR"), P_tmpdir].compactMap(\.self) where parent.utf8.count <= 80 {
            guard unsafe access(parent, W_OK | X_OK) == 0 else { continue }
            // At most 13 characters.
            let folder = try RuntimeFolder(
                named: "\(parent)/earshot-\(String(UInt64.random(in: 0 ... .max), radix: 36))")
            // The broker refuses a spool that other users can replace.
            guard (try? PrivateFolder.checkFoldersAbove(folder.path)) != nil else { continue }
            return folder
        }
        throw ClientError(.folder, "cannot start a private broker: no suitable folder for temporary files; set TMPDIR")
    }
}

/// Parameters of a private bus's supervisor.
package struct PrivateStart: Sendable {
    /// Runtime folder, which the supervisor creates and removes.
    package let folder: RuntimeFolder
    /// Process ID of the owner, with which the supervisor ends.
    package let ownerProcessID: Int32
    /// Inherited descriptor: the supervisor writes a byte when clients can connect, and closes it.
    package let readyDescriptor: Int32
    /// Maximum number of worker processes; nil for the default.
    package let maximumWorkers: Int?
    /// Folder of the cache; nil for no cache.
    package let cacheFolder: String?

    /// Creates the parameters. `owner` is the process ID of the owner.
    package init(
        folder: RuntimeFolder, owner: Int32, readyDescriptor: Int32, maximumWorkers: Int?, cacheFolder: String?
    ) {
        self.folder = folder
        ownerProcessID = owner
        self.readyDescriptor = readyDescriptor
        self.maximumWorkers = maximumWorkers
        self.cacheFolder = cacheFolder
    }

    /// Arguments of the program `earshot`, including its name.
    package var arguments: [String] {
        ["earshot", "serve", "--runtime", folder.path, "--log-level", "error", "--ready-fd", String(readyDescriptor)]
            + ["--private-to", String(ownerProcessID), "--no-durable"]
            + (maximumWorkers.map { ["--maximum-workers", String($0)] } ?? [])
            + (cacheFolder.map { ["--cache-folder", $0] } ?? ["--no-cache"])
    }
}

/// Search for programs.
package enum ProgramPath {
    /// Returns the path of an executable: `name` itself if it contains a slash, otherwise its first match in the
    /// folders of `PATH`; nil if there is none.
    package static func executablePath(of name: String) -> String? {
        guard !name.utf8.contains(UInt8(ascii: "/")) else {
            return unsafe access(ByteText.cString(name), X_OK) == 0 ? name : nil
        }
        let folders = (Environment.value("PATH") ?? "").split(separator: ":")
        return folders.lazy.map { "\($0)/\(name)" }.first { unsafe access(ByteText.cString($0), X_OK) == 0 }
    }
}

/// Options of a private broker.
public struct PrivateBrokerOptions: Sendable {
    /// Path of the program `earshot`; nil searches the folders of `PATH`.
    public var program: String?
    /// Maximum number of worker processes, at least 1; nil for the broker's default.
    public var maximumWorkers: Int?
    /// Folder of the cache, created if missing; nil for no cache. A folder in use by another broker is not used, and
    /// then the private broker has no cache.
    ///
    /// Partial bodies and the spool of the broker are beside it, or beside the user's default cache without one.
    public var cacheFolder: String?

    /// Creates options for ``BrokerChoice/privateBroker(_:)``.
    ///
    /// - Parameters:
    ///   - program: path of the program `earshot`; nil searches `PATH`.
    ///   - maximumWorkers: maximum number of worker processes; nil for the broker's default.
    ///   - cacheFolder: folder of the cache; nil for no cache.
    public init(program: String? = nil, maximumWorkers: Int? = nil, cacheFolder: String? = nil) {
        self.program = program
        self.maximumWorkers = maximumWorkers
        self.cacheFolder = cacheFolder
    }
}
