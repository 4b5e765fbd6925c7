import EarshotLoop
import Foundation
import Synchronization
import Testing

/// Descriptor to which the signal handler writes a byte.
private let interrupted = Atomic<Int32>(-1)

@Suite struct InterruptionTests {
    /// As after the process was stopped: the sleep returns no events, even if some are pending.
    @Test func `what came while a signal interrupted the sleep is told before the pass ends`() throws {
        let pipe = Pipe()
        interrupted.store(pipe.writer, ordering: .sequentiallyConsistent)
        var action = sigaction()
        unsafe action.__sigaction_handler.sa_handler = { _ in
            var byte: UInt8 = 1
            unsafe write(interrupted.load(ordering: .sequentiallyConsistent), &byte, 1)
        }
        var former = sigaction()
        #expect(unsafe sigaction(SIGUSR2, &action, &former) == 0)
        defer { unsafe sigaction(SIGUSR2, &former, nil) }
        var signals = sigset_t()
        unsafe sigaddset(&signals, SIGUSR2)
        var formerMask = sigset_t()
        #expect(unsafe pthread_sigmask(SIG_UNBLOCK, &signals, &formerMask) == 0)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &formerMask, nil) }

        let loop = try EventLoop()
        var passes = 0
        var passesBefore: Int?
        _ = try loop.add(pipe.reader, .readable) { _ in
            pipe.take()
            passesBefore = passes
        }
        _ = loop.addHook {
            passes += 1
            return .untilEvent
        }
        let sleeper = pthread_self()
        let folder = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
        loop.setTimer(after: .zero) {
            Thread.detachNewThread {
                while Self.state(of: folder) != "S" { sched_yield() }
                pthread_kill(sleeper, SIGUSR2)
            }
        }
        #expect(try loop.run(for: timeout) { passesBefore != nil })
        // One pass before the first sleep, and one after the timer.
        #expect(passesBefore == 2)
    }

    @Test func `all that are ready are told of before a timer is, however many they are`() throws {
        let loop = try EventLoop()
        let pipes = (0..<600).map { _ in Pipe() }
        var reported: Set<Int32> = []
        for pipe in pipes {
            pipe.put()
            _ = try loop.add(pipe.reader, .readable) { _ in reported.insert(pipe.reader) }
        }
        var reportedBefore: Int?
        loop.setTimer(after: .zero) { reportedBefore = reported.count }
        #expect(try loop.run(for: timeout) { reportedBefore != nil })
        #expect(reportedBefore == pipes.count)
    }

    /// Returns the kernel's letter for the state of a thread, given by its folder below /proc.
    private static func state(of folder: String) -> Character? {
        let line = try? String(contentsOfFile: "/proc/\(folder)/stat", encoding: .utf8)
        return line?.split(separator: ")").last?.first { $0 != " " }
    }
}
