import EarshotLoop
import Foundation
import Testing

/// Mailboxes, counters, signals and process descriptors as events of a loop.
@Suite struct EventSourceTests {
    @Test func `what another thread puts into a mailbox comes out in order`() throws {
        let loop = try EventLoop()
        let mailbox = try Mailbox<Int>()
        var got: [Int] = []
        let registration = try loop.add(mailbox.descriptor, .readable) { _ in got += mailbox.takeAll() }
        Thread.detachNewThread { for number in 0..<1000 { mailbox.put(number) } }
        #expect(try loop.run(for: timeout) { got.count == 1000 })
        #expect(got == Array(0..<1000))
        loop.remove(registration)
    }

    @Test func `a loop that looks before it sleeps is woken only from its sleep`() throws {
        let mailbox = try Mailbox<Int>()
        #expect(mailbox.putWithoutWaking(1) == .acceptedNeedsWake)
        #expect(mailbox.putWithoutWaking(2) == .acceptedAwake)
        var taken: [Int] = []
        mailbox.takeAll(into: &taken)
        #expect(taken == [1, 2])
        #expect(mailbox.putWithoutWaking(3) == .acceptedAwake)
        #expect(!mailbox.prepareToSleep())
        #expect(mailbox.putWithoutWaking(4) == .acceptedAwake)
        mailbox.takeAll(into: &taken)
        #expect(taken == [3, 4])
        #expect(mailbox.prepareToSleep())
        #expect(mailbox.putWithoutWaking(5) == .acceptedNeedsWake)
        #expect(mailbox.close() == [5])
        #expect(mailbox.putWithoutWaking(6) == .refused)
    }

    @Test func `what another thread puts in while a loop goes to sleep is not forgotten`() throws {
        let loop = try EventLoop()
        let mailbox = try Mailbox<Int>()
        var (got, taken): ([Int], [Int]) = ([], [])
        let registration = try loop.add(mailbox.descriptor, .readable) { _ in mailbox.clearWakeSignal() }
        let hook = loop.addHook {
            mailbox.takeAll(into: &taken)
            got += taken
            return mailbox.prepareToSleep() ? .untilEvent : .noSleep
        }
        Thread.detachNewThread { for number in 0..<100_000 { mailbox.put(number) } }
        #expect(try loop.run(for: timeout) { got.count == 100_000 })
        #expect(got == Array(0..<100_000))
        loop.removeHook(hook)
        loop.remove(registration)
    }

    @Test func `a closed mailbox gives what waited, and takes nothing`() throws {
        let mailbox = try Mailbox<Int>()
        #expect(mailbox.put(1))
        #expect(mailbox.close() == [1])
        #expect(!mailbox.put(2))
        #expect(mailbox.takeAll() == [])
        #expect(mailbox.close() == [])
    }

    @Test func `a counter is readable until it is taken`() throws {
        let counter = try EventCounter()
        #expect(counter.reset() == 0)
        counter.signal()
        counter.signal()
        #expect(counter.reset() == 2)
        #expect(counter.reset() == 0)
    }

    @Test func `a signal is an event`() throws {
        let loop = try EventLoop()
        let signals = try SignalSource([SIGUSR1])
        var got: [Int32] = []
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while let signal = signals.nextSignal() { got.append(signal) }
        }
        // Sent to this thread, because other threads of the test process have not blocked the signal.
        pthread_kill(pthread_self(), SIGUSR1)
        #expect(try loop.run(for: timeout) { !got.isEmpty })
        #expect(got == [SIGUSR1])
        loop.remove(registration)
    }

    @Test func `a signal that the parent disabled stays so on request`() throws {
        // No other test uses this signal. By default it has no effect either, but SIG_IGN differs from SIG_DFL.
        _ = signal(SIGURG, SIG_IGN)
        var set = sigset_t()
        unsafe sigemptyset(&set)
        unsafe sigaddset(&set, SIGURG)
        for respectsIgnored in [false, true] {
            let signals = try SignalSource([SIGURG], skipsIgnoredSignals: respectsIgnored)
            pthread_kill(pthread_self(), SIGURG)
            #expect(signals.nextSignal() == (respectsIgnored ? nil : SIGURG))
            unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
        }
        _ = signal(SIGURG, SIG_DFL)
    }

    @Test func `a lock is held by one opening at a time, and seen without taking it`() throws {
        let path = temporaryPath("lock")
        defer { unsafe unlink(path) }
        #expect(try !LockFile.isHeld(path))
        var first: LockFile? = try LockFile.acquire(path)
        #expect(first != nil)
        #expect(try LockFile.isHeld(path))
        #expect(try LockFile.acquire(path) == nil)
        first = nil
        #expect(try !LockFile.isHeld(path))
        #expect(try LockFile.acquire(path) != nil)
    }

    /// Starts a Python program, and awaits its first output. It runs until its input is closed.
    private func python(_ code: String, _ arguments: String...) throws -> (Process, input: Foundation.Pipe) {
        let program = Process()
        program.executableURL = URL(filePath: "/usr/bin/python3")
        program.arguments = ["-c", code] + arguments
        let (input, output) = (Foundation.Pipe(), Foundation.Pipe())
        program.standardInput = input
        program.standardOutput = output
        try program.run()
        #expect(output.fileHandleForReading.availableData.count == 1)
        return (program, input)
    }

    @Test func `a lock is acquired after the end of the process that holds it`() async throws {
        let path = temporaryPath("lock")
        defer { unsafe unlink(path) }
        // fcntl 37 is F_OFD_SETLK, with a write lock on the whole file.
        let code = """
            import fcntl, os, struct, sys
            file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            os.write(file, b"%d\\n" % os.getpid())
            print(flush=True)
            sys.stdin.read()
            """
        let (holder, input) = try python(code, path)
        #expect(try LockFile.acquire(path, maximumWaitMilliseconds: 20) == nil)
        let waiter = Task.detached { try LockFile.acquire(path, maximumWaitMilliseconds: 60_000) != nil }
        try input.fileHandleForWriting.close()
        #expect(try await waiter.value)
        holder.waitUntilExit()
    }

    @Test func `a lock is acquired when the process in its file has ended, though that process hides its files`()
        async throws
    {
        let path = temporaryPath("lock")
        defer { unsafe unlink(path) }
        // The parent never has the file open, and ends after its child, which holds the lock.
        let code = """
            import fcntl, os, struct, sys
            if os.fork():
                os.wait()
                sys.exit()
            file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            os.write(file, b"%d\\n" % os.getppid())
            print(flush=True)
            sys.stdin.read()
            """
        let (named, input) = try python(code, path)
        #expect(try LockFile.holder(ofLock: path) == nil)
        let waiter = Task.detached { try LockFile.acquire(path, maximumWaitMilliseconds: 60_000) != nil }
        try input.fileHandleForWriting.close()
        #expect(try await waiter.value)
        named.waitUntilExit()
    }

    @Test func `a lock that is given up is free, though another process still has its descriptor`() throws {
        let path = temporaryPath("lock")
        defer { unsafe unlink(path) }
        var lock: LockFile? = try LockFile.acquire(path)
        // Like a copy of this process that has not executed its program yet.
        let copies = (0..<1024).filter { descriptor in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)")) == path
        }.map { dup(Int32($0)) }
        defer { for copy in copies { close(copy) } }
        #expect(copies.count == 1)
        #expect(lock != nil)
        lock = nil
        #expect(try !LockFile.isHeld(path))
    }

    @Test func `a lock is not taken through a link`() throws {
        let path = temporaryPath("link")
        defer { unsafe unlink(path) }
        unsafe symlink("/dev/null", path)
        #expect(throws: SystemError.self) { try LockFile.acquire(path) }
    }

    @Test func `the descriptor limit is raised to the hard one`() throws {
        let limit = try ResourceLimits.raiseDescriptorLimit()
        #expect(limit > 0)
        #expect(try ResourceLimits.raiseDescriptorLimit() == limit)
    }
}
