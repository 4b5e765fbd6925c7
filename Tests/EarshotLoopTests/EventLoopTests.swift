import EarshotLoop
import Glibc
import Testing

/// Timeout longer than any of these tests; only a failing test waits for it.
let timeout = Duration.seconds(60)

@Suite struct EventLoopTests {
    @Test func `timers fire in the order of their deadlines and equal ones in the order they were set`() throws {
        let loop = try EventLoop()
        var fired: [Int] = []
        let start = loop.now
        loop.setTimer(at: start.advanced(by: .milliseconds(3))) { fired.append(3) }
        loop.setTimer(at: start.advanced(by: .milliseconds(1))) { fired.append(1) }
        loop.setTimer(at: start.advanced(by: .milliseconds(2))) { fired.append(20) }
        loop.setTimer(at: start.advanced(by: .milliseconds(2))) { fired.append(21) }
        #expect(try loop.run(for: timeout) { fired.count == 4 })
        #expect(fired == [1, 20, 21, 3])
        #expect(loop.now.since(start) >= .milliseconds(3))
    }

    @Test func `work of the condition is carried out before the next sleep`() throws {
        let loop = try EventLoop()
        var (queued, done) = (0, 0)
        _ = loop.addHook {
            done = queued
            return .untilEvent
        }
        let isDone = try loop.run(for: timeout) {
            if queued == 0 {
                queued = 1
                loop.requestAnotherPass()
            }
            return done == 1
        }
        #expect(isDone)
    }

    @Test func `a moment after the end of time is the end of time`() {
        let start = LoopTime(nanoseconds: 5)
        #expect(start.advanced(milliseconds: 3) == start.advanced(by: .milliseconds(3)))
        #expect(start.advanced(milliseconds: .max) == LoopTime(nanoseconds: .max))
        #expect(start.advanced(milliseconds: .min) == LoopTime(nanoseconds: .min))
        #expect(LoopTime(nanoseconds: .max - 5).advanced(milliseconds: 1) == LoopTime(nanoseconds: .max))
    }

    @Test func `a cancelled timer does not fire, also among thousands`() throws {
        let loop = try EventLoop()
        var fired: [Int] = []
        let timers = (0..<5000).map { number in
            loop.setTimer(after: .microseconds(number)) { fired.append(number) }
        }
        for (number, timer) in timers.enumerated() where number % 1000 != 7 { loop.cancelTimer(timer) }
        #expect(try loop.run(for: timeout) { fired.count == 5 })
        #expect(fired == [7, 1007, 2007, 3007, 4007])
    }

    @Test func `a timer that is cancelled twice takes no later one with it`() throws {
        let loop = try EventLoop()
        let first = loop.setTimer(after: .zero) { Issue.record("a cancelled timer fired") }
        loop.cancelTimer(first)
        var fired = 0
        let second = loop.setTimer(after: .zero) { fired += 1 }
        loop.cancelTimer(first)
        #expect(try loop.run(for: timeout) { fired == 1 })
        // A cancelled timer does not affect the next one either.
        loop.setTimer(after: .zero) { fired += 1 }
        loop.cancelTimer(second)
        #expect(try loop.run(for: timeout) { fired == 2 })
    }

    @Test func `a timer that sets itself again does not keep the loop`() throws {
        let loop = try EventLoop()
        var count = 0
        func again() {
            count += 1
            loop.setTimer(at: loop.now, again)
        }
        loop.setTimer(at: loop.now, again)
        #expect(try loop.run(for: timeout) { count == 3 })
    }

    @Test func `a ready descriptor is told in every pass until it is read`() throws {
        let loop = try EventLoop()
        let pipe = Pipe()
        var calls = 0
        let registration = try loop.add(pipe.reader, .readable) { readiness in
            #expect(readiness == .readable)
            calls += 1
            if calls == 3 { pipe.take() }
        }
        pipe.put()
        #expect(try loop.run(for: timeout) { calls == 3 })
        #expect(try !loop.run(for: .milliseconds(20)) { calls > 3 })
        loop.remove(registration)
    }

    @Test func `a registration removed in a batch gets no event of that batch`() throws {
        let loop = try EventLoop()
        let pipes = [Pipe(), Pipe()]
        var registrations: [EventLoop.Registration] = []
        var called: [Int] = []
        for index in pipes.indices {
            registrations.append(
                try loop.add(pipes[index].reader, .readable) { _ in
                    called.append(index)
                    for registration in registrations { loop.remove(registration) }
                })
        }
        for pipe in pipes { pipe.put() }
        #expect(try loop.run(for: timeout) { !called.isEmpty })
        #expect(try !loop.run(for: .milliseconds(20)) { called.count > 1 })
    }

    @Test func `a descriptor number used again belongs to the new registration alone`() throws {
        let loop = try EventLoop()
        var calls: [String] = []
        let (first, second) = (Pipe(), Pipe())
        let number = first.reader
        let old = try loop.add(number, .readable) { _ in calls.append("old") }
        // Closed without notice, as by a library, and opened again under the same number.
        dup2(second.reader, number)
        let new = try loop.add(number, .readable) { _ in
            calls.append("new")
            second.take()
        }
        loop.remove(old)
        second.put()
        #expect(try loop.run(for: timeout) { !calls.isEmpty })
        #expect(calls == ["new"])
        loop.remove(new)
    }

    @Test func `an interest that changes takes effect`() throws {
        let loop = try EventLoop()
        let pipe = Pipe()
        var reported: [EventLoop.Readiness] = []
        let registration = try loop.add(pipe.writer, []) { reported.append($0) }
        #expect(try !loop.run(for: .milliseconds(5)) { !reported.isEmpty })
        try loop.changeInterest(of: registration, to: .writable)
        #expect(try loop.run(for: timeout) { reported.first == .writable })
        loop.remove(registration)
    }

    @Test func `a hook with pending work keeps the loop from sleeping, and its moment wakes it`() throws {
        let loop = try EventLoop()
        let start = loop.now
        var passes = 0
        let hook = loop.addHook {
            passes += 1
            return passes < 4 ? .noSleep : .until(start.advanced(by: .milliseconds(30)))
        }
        #expect(try loop.run(for: timeout) { passes == 4 })
        // Checked before the sleep, and once more after it.
        #expect(try loop.run(for: timeout) { passes == 6 })
        #expect(loop.now.since(start) >= .milliseconds(30))
        loop.removeHook(hook)
        #expect(try !loop.run(for: .milliseconds(5)) { passes > 6 })
    }

    @Test func `a hook that a hook adds is called before the loop sleeps`() throws {
        let loop = try EventLoop()
        var isCalled = false
        var hooks: [EventLoop.HookID] = []
        hooks.append(
            loop.addHook {
                guard hooks.count == 1 else { return .untilEvent }
                hooks.append(
                    loop.addHook {
                        isCalled = true
                        return .untilEvent
                    })
                return .untilEvent
            })
        let start = LoopTime.readClock()
        #expect(try loop.run(for: timeout) { isCalled })
        #expect(LoopTime.readClock().since(start) < timeout)
        for hook in hooks { loop.removeHook(hook) }
    }

    @Test func `an idle loop does not wake`() throws {
        let loop = try EventLoop()
        let pipe = Pipe()
        let registration = try loop.add(pipe.reader, .readable) { _ in }
        var passes = 0
        let hook = loop.addHook {
            passes += 1
            return .untilEvent
        }
        try loop.run(for: .milliseconds(100)) { false }
        // One pass before the sleep and one at the end of the limit, unless the limit expired before the first.
        #expect(passes <= 2)
        loop.remove(registration)
        loop.removeHook(hook)
    }

    @Test func `stop ends a run that has no end`() throws {
        let loop = try EventLoop()
        loop.setTimer(after: .milliseconds(1)) { loop.stop() }
        try loop.run()
    }
}
