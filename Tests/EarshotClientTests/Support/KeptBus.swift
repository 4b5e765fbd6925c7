import EarshotLoop
import Glibc
import Testing

@testable import EarshotClient

/// Bus of the built program in its own folder. It can be killed and restarted.
final class KeptBus {
    let folder: RuntimeFolder
    private var child: ChildProcess?

    init() throws {
        folder = try RuntimeFolder(named: Endpoint().path)
    }

    /// Starts the bus and connects when it is ready.
    func connect() async throws -> Bus {
        let (reader, writer) = try InheritedPipe.make()
        child = try ChildProcess.spawn(
            StormTests.program,
            ["earshot", "serve", "--runtime", folder.path, "--log-level", "error", "--workers", "1", "--no-cache"]
                + ["--durable-folder", "\(folder.path)/durable", "--ready-fd", String(writer)],
            inheriting: [writer])
        close(writer)
        defer { close(reader) }
        var byte: UInt8 = 0
        #expect(unsafe read(reader, &byte, 1) == 1, "it is ready")
        return try await Bus.connect(to: .running(in: folder.path), timeout: .seconds(300))
    }

    /// Kills the bus with its child processes.
    func kill() {
        if let child { Self.end(child, SIGKILL) }
        child = nil
    }

    /// Sends a signal to a child, and waits for its end.
    static func end(_ child: ChildProcess, _ signal: Int32) {
        child.sendSignal(signal)
        var entry = pollfd(fd: child.descriptor, events: Int16(POLLIN), revents: 0)
        while unsafe poll(&entry, 1, -1) != 1 {}
        _ = child.reap()
    }

    deinit {
        kill()
        PrivateFolder.remove(folder.path)
    }
}
