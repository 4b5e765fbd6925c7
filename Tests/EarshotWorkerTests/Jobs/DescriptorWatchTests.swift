import EarshotLoop
import Glibc
import Testing

@testable import EarshotWorker

/// Descriptors of a C library at the worker's loop.
@Suite final class DescriptorWatchTests {
    private let loop: EventLoop
    private lazy var watch = makeWatch()
    private var reported = 0

    init() throws {
        loop = try EventLoop()
    }

    @Test func `a descriptor that is wanted again is told of again`() throws {
        let pair = SocketPair()
        defer { pair.close() }
        want(pair.near)
        watch.setInterest(pair.near, reads: false, writes: false, isNew: false)
        want(pair.near)
        pair.send()
        #expect(try loop.run(for: .seconds(60)) { reported == 1 })
    }

    @Test func `what comes while nobody waits is told to nobody, and keeps no loop busy`() throws {
        let pair = SocketPair()
        defer { pair.close() }
        want(pair.near)
        watch.setInterest(pair.near, reads: false, writes: false, isNew: false)
        pair.send()
        var passes = 0
        let hook = loop.addHook {
            passes += 1
            return .untilEvent
        }
        var isOver = false
        loop.setTimer(after: .milliseconds(20)) { isOver = true }
        #expect(try loop.run { isOver })
        loop.removeHook(hook)
        #expect(reported == 0)
        // One pass each for the byte, the timer and the start. A descriptor that is reported in each pass makes
        // thousands.
        #expect(passes < 10)
        want(pair.near)
        #expect(try loop.run(for: .seconds(60)) { reported > 0 })
    }

    @Test func `a number that means another socket is watched for that one`() throws {
        let first = SocketPair()
        want(first.near)
        watch.setInterest(first.near, reads: false, writes: false, isNew: false)
        let second = SocketPair()
        defer { second.close() }
        // As if the library had closed the first descriptor and opened the second under the same number.
        #expect(dup2(second.near, first.near) == first.near)
        want(first.near, isNew: true)
        second.send()
        #expect(try loop.run(for: .seconds(60)) { reported == 1 })
        first.close()
    }

    @Test func `what the loop has taken in already is told to nobody once the watch is gone`() throws {
        let pair = SocketPair()
        defer { pair.close() }
        want(pair.near)
        pair.send()
        watch = makeWatch()
        #expect(try !loop.run(for: .milliseconds(20)) { reported > 0 })
    }

    private func makeWatch() -> DescriptorWatch {
        DescriptorWatch(loop) { [unowned self] descriptor, _ in
            reported += 1
            var byte: UInt8 = 0
            unsafe recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT))
        } failed: {
            Issue.record($0)
        }
    }

    private func want(_ descriptor: Int32, isNew: Bool = false) {
        watch.setInterest(descriptor, reads: true, writes: false, isNew: isNew)
    }
}

/// Two connected sockets.
struct SocketPair {
    let near: Int32
    let far: Int32

    init() {
        var pair: [Int32] = [-1, -1]
        precondition(unsafe socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0, "socketpair: \(errno)")
        (near, far) = (pair[0], pair[1])
    }

    /// Makes `near` readable.
    func send() {
        precondition(unsafe Glibc.send(far, "x", 1, 0) == 1, "send: \(errno)")
    }

    func close() {
        Glibc.close(near)
        Glibc.close(far)
    }
}
