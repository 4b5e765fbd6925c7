import EarshotLoop
import Glibc

/// A redis-server or sentinel of one test, which ends with the test or with its process.
final class RedisServer {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let folder: String
    let port: UInt16
    private let child: ChildProcess
    /// The server's shell ends it when this socket is closed.
    private let lifeline: Int32
    private let output: Int32
    private(set) var pid: Int32 = 0

    /// Unix socket of a server or sentinel.
    var socket: String { "\(folder)/redis.sock" }

    /// Starts a server, and awaits that it accepts connections.
    ///
    /// - Parameters:
    ///   - port: Port on the loopback interface; 0 for the Unix socket alone.
    ///   - configuration: Further lines of its configuration.
    init(port: UInt16 = 0, isSentinel: Bool = false, _ configuration: [String] = []) throws {
        self.port = port
        // mkdtemp(3) replaces the six letters X.
        var name = Array("\(Self.temporaryFolder)/earshot-redis-XXXXXX".utf8CString)
        guard unsafe mkdtemp(&name) != nil else { throw Failure(description: "mkdtemp: \(errno)") }
        let folder = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        self.folder = folder
        var lines = ["port \(port)", "bind 127.0.0.1", "dir \(folder)"] + configuration
        lines.append("unixsocket \(folder)/redis.sock")
        if !isSentinel { lines.append("save \"\"") }
        let file = "\(folder)/server.conf"
        guard let stream = unsafe fopen(file, "w") else { throw Failure(description: "fopen: \(errno)") }
        unsafe fputs(lines.joined(separator: "\n") + "\n", stream)
        unsafe fclose(stream)

        // Both are closed in children of other tests from the start, as pipe(2) in Swift is not.
        let (lifeline, input) = try LineChannel.makePair()
        let (output, writer) = try LineChannel.makePair()
        self.lifeline = lifeline
        self.output = output
        let program = isSentinel ? "redis-sentinel" : "redis-server"
        child = try ChildProcess.spawn(
            "/bin/sh", ["sh", "-c", "\(program) \(file) & echo pid $!; cat >/dev/null; kill -9 $! 2>/dev/null"],
            streams: ChildProcess.Streams(input: input, output: writer))
        close(input)
        close(writer)
        var text = ""
        // The shell and the server write in any order.
        while !text.contains(isSentinel ? "+monitor" : "eady to accept connections") || !text.contains("pid ") {
            var entry = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            var bytes = [UInt8](repeating: 0, count: 4_096)
            guard unsafe poll(&entry, 1, 60_000) == 1, case let count = unsafe read(output, &bytes, bytes.count),
                count > 0
            else { throw Failure(description: "\(program) did not start: \(text)") }
            text += String(decoding: bytes[..<count], as: UTF8.self)
        }
        let line = text.split(separator: "\n").first { $0.hasPrefix("pid ") }
        pid = line.flatMap { Int32($0.dropFirst(4)) } ?? 0
        guard pid > 1 else { throw Failure(description: "no process ID: \(text)") }
    }

    deinit {
        send(SIGKILL)
        close(lifeline)
        close(output)
        child.killAndReap()
        for name in ["redis.sock", "server.conf", "dump.rdb"] { _ = unsafe unlink("\(folder)/\(name)") }
        _ = unsafe rmdir(folder)
    }

    /// Sends a signal to the server; none to one that did not start, since 0 is this process's group.
    func send(_ signal: Int32) {
        if pid > 1 { kill(pid, signal) }
    }

    static var temporaryFolder: String { unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp" }

    /// Ports that were free at the same time.
    static func freePorts(_ count: Int) throws -> [UInt16] {
        let address = TCPSocket.Address.ipv4([127, 0, 0, 1])
        let listeners = try (0..<count).map { _ in try TCPSocket.listen(address, port: 0, backlog: 1) }
        defer { for listener in listeners { close(listener.descriptor) } }
        return listeners.map(\.port)
    }
}
