import Glibc
import Testing

@testable import EarshotLoop

/// Child processes: their end, their signals and their descriptors.
@Suite struct ChildProcessTests {
    @Test func `a child's end is an event, with its code`() throws {
        let child = try ChildProcess.spawn("/bin/sh", ["sh", "-c", "exit 7"])
        try awaitEnd(child)
        #expect(child.reap() == .code(7))
        // A second call returns the same result.
        #expect(child.reap() == .code(7))
    }

    @Test func `a killed child ends by the signal, and gets none afterwards`() throws {
        let child = try ChildProcess.spawn("/bin/sleep", ["sleep", "1000"])
        #expect(child.reap() == nil)
        #expect(child.sendSignal(SIGKILL))
        try awaitEnd(child)
        #expect(child.reap() == .signal(SIGKILL))
        #expect(!child.sendSignal(SIGKILL))
    }

    @Test func `a child gets the descriptors it is given, and no others`() throws {
        let given = Pipe()
        let kept = Pipe()
        _ = fcntl(given.reader, F_SETFD, FD_CLOEXEC)
        _ = fcntl(kept.reader, F_SETFD, FD_CLOEXEC)
        let script = "test -e /proc/self/fd/\(given.reader) && ! test -e /proc/self/fd/\(kept.reader)"
        let child = try ChildProcess.spawn("/bin/sh", ["sh", "-c", script], inheriting: [given.reader])
        try awaitEnd(child)
        #expect(child.reap() == .code(0))
    }

    @Test func `a child has no blocked signals, whatever the parent blocks`() throws {
        _ = try SignalSource([SIGUSR2])
        let child = try ChildProcess.spawn("/bin/grep", ["grep", "-q", "^SigBlk:\t0*$", "/proc/self/status"])
        try awaitEnd(child)
        #expect(child.reap() == .code(0))
    }

    @Test func `a child has the streams and the variables that it is given`() throws {
        let input = try InheritedPipe.makeUnnamedFile(containing: Array(repeating: UInt8(ascii: "x"), count: 200_000))
        let (output, errors) = (Pipe(), Pipe())
        let streams = ChildProcess.Streams(input: input, output: output.writer, errorOutput: errors.writer)
        let script = "echo $EARSHOT_GIVEN $HOME $(wc -c); echo $EARSHOT_GIVEN >&2"
        let child = try ChildProcess.spawn(
            "/bin/sh", ["sh", "-c", script], streams: streams, variables: ["EARSHOT_GIVEN": "a=b", "HOME": "here"])
        close(input)
        try awaitEnd(child)
        #expect(child.reap() == .code(0))
        #expect(output.text() == "a=b here 200000\n")
        #expect(errors.text() == "a=b\n")
    }

    @Test func `a signal to a child's group reaches what it has started`() throws {
        let output = Pipe()
        let streams = ChildProcess.Streams(output: output.writer)
        let child = try ChildProcess.spawn("/bin/sh", ["sh", "-c", "sleep 1000 & echo $!; wait"], streams: streams)
        let grandchild = try #require(Int32(output.text().dropLast()))
        let process = try ProcessDescriptor(pid: grandchild)
        child.sendSignalToGroup(SIGKILL)
        try awaitEnd(child)
        #expect(child.reap() == .signal(SIGKILL))
        let loop = try EventLoop()
        var hasEnded = false
        _ = try loop.add(process.descriptor, .readable) { _ in hasEnded = true }
        #expect(try loop.run(for: timeout) { hasEnded })
        // Its process ID may be reused.
        child.sendSignalToGroup(SIGKILL)
    }

    @Test func `the group of a child that was reaped elsewhere gets no signal`() throws {
        let (input, output) = (Pipe(), Pipe())
        let streams = ChildProcess.Streams(input: input.reader, output: output.writer)
        let script = "exec 3<&0; { head -c 1 <&3 >/dev/null; echo alive; } & echo started"
        let child = try ChildProcess.spawn("/bin/sh", ["sh", "-c", script], streams: streams)
        #expect(output.text() == "started\n")
        try awaitEnd(child)
        #expect(waitpid(child.pid, nil, 0) == child.pid)
        #expect(child.reap() == .code(-1))
        // The group still has a member, as one that reuses the number would.
        child.sendSignalToGroup(SIGKILL)
        let loop = try EventLoop()
        var isAlive = false
        _ = try loop.add(output.reader, .readable) { _ in isAlive = output.text() == "alive\n" }
        input.put()
        #expect(try loop.run(for: timeout) { isAlive })
    }

    @Test func `an abandoned child is killed with its group and reaped`() throws {
        let output = Pipe()
        let streams = ChildProcess.Streams(output: output.writer)
        let child = try ChildProcess.spawn("/bin/sh", ["sh", "-c", "sleep 1000 & echo $!; wait"], streams: streams)
        let grandchild = try ProcessDescriptor(pid: try #require(Int32(output.text().dropLast())))
        child.killAndReap()
        #expect(child.reap() == .code(-1))
        let loop = try EventLoop()
        var hasEnded = false
        _ = try loop.add(grandchild.descriptor, .readable) { _ in hasEnded = true }
        #expect(try loop.run(for: timeout) { hasEnded })
        let end = LoopTime.readClock().advanced(by: timeout)
        // The process ID has an entry until the child is reaped.
        while kill(child.pid, 0) == 0, LoopTime.readClock() < end { sched_yield() }
        #expect(kill(child.pid, 0) == -1)
    }

    @Test func `a program that is not there is an error`() {
        #expect(throws: SystemError("posix_spawn", number: ENOENT)) {
            try ChildProcess.spawn("/nonexistent/program", ["program"])
        }
    }

    @Test func `a process with other threads is not copied`() throws {
        try BackgroundThread.run {}
        let copy = try ChildProcess.fork { 0 }
        #expect(copy == nil)
    }

    @Test func `any process's end is an event by its number`() throws {
        let child = try ChildProcess.spawn("/bin/sleep", ["sleep", "1000"])
        let process = try ProcessDescriptor(pid: child.pid)
        #expect(!process.hasEnded)
        #expect(process.sendSignal(0))
        let loop = try EventLoop()
        var hasEnded = false
        let registration = try loop.add(process.descriptor, .readable) { _ in hasEnded = true }
        #expect(process.sendSignal(SIGKILL))
        #expect(try loop.run(for: timeout) { hasEnded })
        #expect(process.hasEnded)
        loop.remove(registration)
        #expect(child.reap() == .signal(SIGKILL))
        #expect(throws: SystemError("pidfd_open", number: ESRCH)) { try ProcessDescriptor(pid: child.pid) }
    }

    @Test func `a process that cannot be opened for lack of descriptors has not ended`() async {
        await #expect(processExitsWith: .success) {
            var limit = rlimit()
            unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = 0
            guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { exit(2) }
            exit(ProcessDescriptor.hasEnded(pid: getpid()) ? 1 : 0)
        }
        await #expect(processExitsWith: .success) {
            let ended = try ChildProcess.spawn("/bin/true", ["true"])
            while ended.reap() == nil { sched_yield() }
            exit(ProcessDescriptor.hasEnded(pid: ended.pid) ? 0 : 1)
        }
    }

    @Test func `a parent that is not the expected one is seen`() throws {
        #expect(try !ParentProcess.setParentDeathSignal(parentPid: -1, signal: 0))
        #expect(try ParentProcess.setParentDeathSignal(parentPid: getppid(), signal: 0))
    }

    private func awaitEnd(_ child: ChildProcess) throws {
        let loop = try EventLoop()
        var hasEnded = false
        let registration = try loop.add(child.descriptor, .readable) { _ in hasEnded = true }
        #expect(try loop.run(for: timeout) { hasEnded })
        loop.remove(registration)
    }
}
