import Foundation
import Synchronization
import Testing

@testable import EarshotLoop

/// Tests of a sandbox around one thread each. The kernel of the machine must have Landlock and seccomp.
@Suite final class SandboxTests {
    private let root = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"

    init() throws {
        for folder in ["", "/mine", "/other"] { try PrivateFolder.createWithParents(root + folder) }
        for file in ["/mine/a", "/other/secret", "/single"] {
            #expect(FileManager.default.createFile(atPath: root + file, contents: Data("x".utf8)))
        }
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Results of a thread: the report, and the errno values by name of the attempt.
    private final class Found: Sendable {
        let state = Mutex<(report: Sandbox.Report?, codes: [String: Int32])>((nil, [:]))
        let done = DispatchSemaphore(value: 0)
    }

    /// Runs `attempts` in a sandbox. Each returns a negative number with `errno` if it fails.
    ///
    /// - Returns: The error numbers by name; 0 for success.
    private func results(
        _ sandbox: Sandbox, _ attempts: [(name: String, run: @Sendable () -> Int)]
    ) throws -> (report: Sandbox.Report, codes: [String: Int32]) {
        let found = Found()
        let attempts = attempts.map { (name: $0.name, run: $0.run) }
        try BackgroundThread.run {
            let report = sandbox.enterThread()
            var codes: [String: Int32] = [:]
            for attempt in attempts {
                errno = 0
                codes[attempt.name] = attempt.run() < 0 ? errno : 0
            }
            found.state.withLock { $0 = (report, codes) }
            found.done.signal()
        }
        found.done.wait()
        return try found.state.withLock { (try #require($0.report), $0.codes) }
    }

    private func opening(_ path: String, _ flags: Int32) -> @Sendable () -> Int {
        { @Sendable in
            let descriptor = unsafe open(path, flags, 0o600)
            if descriptor >= 0 { close(descriptor) }
            return Int(descriptor)
        }
    }

    @Test func `only listed files can be opened`() throws {
        var sandbox = Sandbox()
        sandbox.allow(.write, path: root + "/mine")
        sandbox.allow(.read, path: root + "/single")
        sandbox.allow(.read, path: root + "/missing")
        let mine = root + "/mine"
        let other = root + "/other"
        let found = try results(
            sandbox,
            [
                ("read listed", opening(mine + "/a", O_RDONLY)),
                ("write listed", opening(mine + "/a", O_WRONLY | O_TRUNC)),
                ("create", opening(mine + "/new", O_WRONLY | O_CREAT | O_EXCL)),
                ("remove", { unsafe Int(unlink(mine + "/new")) }),
                ("read single", opening(root + "/single", O_RDONLY)),
                ("write single", opening(root + "/single", O_WRONLY)),
                ("read other", opening(other + "/secret", O_RDONLY)),
                ("write other", opening(other + "/secret", O_WRONLY)),
                ("create elsewhere", opening(other + "/new", O_WRONLY | O_CREAT)),
                ("remove elsewhere", { unsafe Int(unlink(other + "/secret")) }),
                ("list elsewhere", opening(other, O_RDONLY | O_DIRECTORY)),
                ("move out", { unsafe Int(rename(mine + "/a", other + "/a")) }),
                ("move in", { unsafe Int(rename(other + "/secret", mine + "/secret")) }),
                ("link in", { unsafe Int(link(other + "/secret", mine + "/secret")) }),
                ("symbolic link", { unsafe Int(symlink(other + "/secret", mine + "/link")) }),
                ("move within", { unsafe Int(rename(mine + "/a", mine + "/b")) }),
                ("second name", { unsafe Int(link(mine + "/a", mine + "/b")) }),
                ("folder", { unsafe Int(mkdir(mine + "/folder", 0o700)) }),
                ("environment of init", opening("/proc/1/environ", O_RDONLY)),
            ])
        #expect(found.report.landlockVersion ?? 0 >= 1)
        for name in ["read listed", "write listed", "create", "remove", "read single"] {
            #expect(found.codes[name] == 0, "\(name)")
        }
        for name in [
            "write single", "read other", "write other", "create elsewhere", "remove elsewhere", "list elsewhere",
            "environment of init",
        ] { #expect(found.codes[name] == EACCES, "\(name)") }
        for name in ["move out", "move in", "link in", "symbolic link", "move within", "second name", "folder"] {
            #expect(found.codes[name] == EPERM, "\(name)")
        }
        #expect(FileManager.default.fileExists(atPath: other + "/secret"))
    }

    @Test func `system calls that concern other processes or the machine fail`() throws {
        let parent = getppid()
        let path = root + "/single"
        func call(_ number: Int, _ first: Int = 0, _ second: Int = 0) -> @Sendable () -> Int {
            { @Sendable in SystemCall.run(number, first, second) }
        }
        let found = try results(
            Sandbox(),
            [
                ("execve", { unsafe path.withCString { SystemCall.run(SystemCall.execve, Int(bitPattern: $0)) } }),
                ("fork", call(SystemCall.clone, Int(SIGCHLD))), ("clone3", call(SystemCall.clone3)),
                ("ptrace", call(SystemCall.ptrace, 16, Int(parent))),
                ("unshare", call(SystemCall.unshare, 0x1000_0000)),
                ("setuid", call(SystemCall.setuid, Int(getuid()))), ("kill", { Int(kill(parent, 0)) }),
                ("kill itself", { Int(kill(getpid(), 0)) }), ("chmod", { unsafe Int(chmod(path, 0o777)) }),
                ("bpf", call(SystemCall.bpf)), ("packet socket", { Int(socket(AF_PACKET, 3, 0)) }),
                ("raw socket", { Int(socket(AF_INET, 3, 1)) }),
                ("multipath", { Int(socket(AF_INET, Int32(SOCK_STREAM.rawValue), 262)) }),
                ("datagrams of Unix", { Int(socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)) }),
                ("socket", { Int(close(socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0))) }),
                ("bind", { Self.binding() }), ("listen", { Self.listening() }),
                ("core limit", { Self.limiting(__rlimit_resource_t(RLIMIT_CORE.rawValue)) }),
                ("new session", { Int(setsid()) }),
                ("owner of signals", { Int(fcntl(0, F_SETOWN, parent)) }),
            ])
        #expect(found.report.hasSystemCallFilter)
        for name in [
            "execve", "fork", "ptrace", "unshare", "setuid", "kill", "chmod", "bpf", "raw socket", "datagrams of Unix",
            "bind",
            "listen", "core limit", "new session", "owner of signals",
        ] {
            #expect(found.codes[name] == EPERM, "\(name)")
        }
        #expect(found.codes["clone3"] == ENOSYS)
        #expect(found.codes["packet socket"] == EAFNOSUPPORT)
        #expect(found.codes["multipath"] == EPROTONOSUPPORT)
        for name in ["kill itself", "socket"] { #expect(found.codes[name] == 0, "\(name)") }
    }

    @Test func `a process that listens and does not connect has no sockets of TCP and UDP`() throws {
        var sandbox = Sandbox()
        sandbox.mayConnect = false
        sandbox.mayListen = true
        let name = "\0earshot-\(UUID().uuidString)"
        let found = try results(
            sandbox,
            [
                ("TCP", { Int(socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)) }),
                ("UDP", { Int(socket(AF_INET6, Int32(SOCK_DGRAM.rawValue), 0)) }),
                ("Unix", { Self.listening(name) }),
            ])
        #expect(found.codes == ["TCP": EPERM, "UDP": EPERM, "Unix": 0])
    }

    @Test func `a sandboxed thread starts threads, and those are sandboxed as well`() throws {
        let path = root + "/single"
        let opens = opening(path, O_RDONLY)
        let found = try results(
            Sandbox(),
            [
                (
                    "thread",
                    { @Sendable in
                        let found = Found()
                        do throws(SystemError) {
                            try BackgroundThread.run {
                                found.state.withLock { $0.codes["open"] = opens() < 0 ? errno : 0 }
                                found.done.signal()
                            }
                        } catch {
                            return -1
                        }
                        found.done.wait()
                        errno = found.state.withLock { $0.codes["open"] } ?? 0
                        return -1
                    }
                )
            ])
        #expect(found.codes["thread"] == EACCES)
        #expect(opens() >= 0, "other threads are not restricted")
    }

    @Test func `a process with other threads is not restricted, and reports that`() {
        let report = Sandbox().enter()
        #expect(report.landlockVersion == nil)
        #expect(!report.hasSystemCallFilter)
        #expect(report.missingPartReason == "the process has other threads")
    }

    /// Listens on a free port that the kernel chooses.
    private static func listening() -> Int {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        return Int(listen(descriptor, 1))
    }

    /// Listens at an abstract name.
    private static func listening(_ name: String) -> Int {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: name.utf8) }
        let length = MemoryLayout<sa_family_t>.size + name.utf8.count
        let isBound = unsafe withUnsafePointer(to: &address) { place in
            unsafe place.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe bind(descriptor, $0, socklen_t(length)) == 0
            }
        }
        return isBound ? Int(listen(descriptor, 1)) : -1
    }

    /// Sets a limit of this process to its present value.
    private static func limiting(_ resource: __rlimit_resource_t) -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { return 0 }
        return unsafe Int(setrlimit(resource, &limit))
    }

    /// Binds a socket to a free port of loopback.
    private static func binding() -> Int {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return unsafe withUnsafePointer(to: &address) { place in
            unsafe place.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Int(bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)))
            }
        }
    }
}
