public import EarshotLoop
internal import Glibc

/// A bus for one program alone: a supervisor with broker and workers in a folder of their own. It ends and goes with
/// its owner, also when that is killed, or the thread that started it ends.
public final class PrivateBroker {
    /// What becomes of it.
    public enum Event: Equatable, Sendable {
        /// Programs can connect. Once.
        case ready
        /// Its processes have ended, or end; nothing follows.
        case ended
    }

    /// How long it may take to go; it has nothing to finish.
    private static let farewell = Duration.seconds(5)

    /// Where it listens.
    public let folder: RuntimeFolder
    private let child: ChildProcess
    private let loop: EventLoop
    private let onEvent: (Event) -> Void
    private var reader: Int32
    private var registrations: [EventLoop.Registration] = []

    /// Begins to start it; what becomes of it is told from the loop.
    ///
    /// - Parameters:
    ///   - mostWorkers: worker processes at most; nil for as many as the settings say.
    ///   - cacheFolder: the folder of its cache; nil for none.
    ///   - launch: starts its supervisor.
    /// - Throws: `ClientError` when there is no folder for it, `SystemError` when the program cannot be started.
    public static func start(
        mostWorkers: Int?, cacheFolder: String?, loop: EventLoop,
        launch: (PrivateStart) throws(SystemError) -> ChildProcess, onEvent: @escaping (Event) -> Void
    ) throws -> PrivateBroker {
        let folder = try newFolder()
        let (reader, writer) = try InheritedPipe.make()
        defer { close(writer) }
        let start = PrivateStart(
            folder: folder, owner: getpid(), readyDescriptor: writer, mostWorkers: mostWorkers,
            cacheFolder: cacheFolder)
        let broker: PrivateBroker
        do throws(SystemError) {
            broker = PrivateBroker(folder, try launch(start), reader, loop, onEvent)
        } catch {
            close(reader)
            throw error
        }
        do throws(SystemError) {
            try broker.listen()
        } catch {
            broker.end()
            throw error
        }
        return broker
    }

    private init(
        _ folder: RuntimeFolder, _ child: ChildProcess, _ reader: Int32, _ loop: EventLoop,
        _ onEvent: @escaping (Event) -> Void
    ) {
        self.folder = folder
        self.child = child
        self.reader = reader
        self.loop = loop
        self.onEvent = onEvent
    }

    private func listen() throws(SystemError) {
        registrations = [try loop.add(reader, .readable) { [unowned self] _ in readinessTold() }]
        registrations.append(try loop.add(child.descriptor, .readable) { [unowned self] _ in over() })
    }

    /// Ends all its processes, waits for that, and removes its folder. Nothing is told any more.
    ///
    /// - Returns: how its supervisor ended; nil if it does not.
    @discardableResult
    public func end() -> ChildProcess.Exit? {
        forget()
        child.send(SIGTERM)
        if !awaitDeath() {
            child.send(SIGKILL)
            _ = awaitDeath()
        }
        let exit = child.reap()
        Folder.remove(folder.path)
        return exit
    }

    /// - Returns: false if it lives on after some seconds.
    private func awaitDeath() -> Bool {
        var entry = pollfd(fd: child.descriptor, events: Int16(POLLIN), revents: 0)
        let deadline = LoopTime.read().advanced(by: Self.farewell)
        while true {
            let left = deadline.since(LoopTime.read()) / .milliseconds(1)
            guard left > 0 else { return false }
            if unsafe poll(&entry, 1, Int32(left.rounded(.up))) > 0 { return true }
        }
    }

    private func readinessTold() {
        var byte: UInt8 = 0
        let isReady = unsafe read(reader, &byte, 1) == 1
        loop.remove(registrations[0])
        close(reader)
        reader = -1
        // Else its end is told by its descriptor.
        if isReady { onEvent(.ready) }
    }

    private func over() {
        forget()
        onEvent(.ended)
    }

    private func forget() {
        for registration in registrations { loop.remove(registration) }
        registrations = []
        if reader >= 0 { close(reader) }
        reader = -1
    }

    /// A folder of which nobody knows, in that for temporary files unless its path is too long for a socket. The
    /// supervisor makes it: when this process is killed before there is one, none is left behind.
    private static func newFolder() throws(ClientError) -> RuntimeFolder {
        for parent in [Environment.value("TMPDIR"), P_tmpdir].compactMap(\.self) where parent.utf8.count <= 80 {
            guard unsafe access(parent, W_OK | X_OK) == 0 else { continue }
            // 13 letters at most.
            let folder = try RuntimeFolder(
                named: "\(parent)/earshot-\(String(UInt64.random(in: 0 ... .max), radix: 36))")
            // The broker refuses a spool that others can replace.
            guard (try? PrivateFolder.checkFoldersAbove(folder.path)) != nil else { continue }
            return folder
        }
        throw ClientError(.folder, "there is no folder for a private broker: set TMPDIR")
    }
}
