import EarshotHTTP
import EarshotLoop
import EarshotWire
import Foundation
import Logging
import Testing
import ZMTP

@testable import EarshotWorker

/// A link to a broker that the test plays.
@Suite final class BrokerLinkTests {
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")

    init() throws {
        try FileManager.default.createDirectory(
            at: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    @Test func `terminals for a lost broker are dropped`() throws {
        let loop = try EventLoop()
        let path = folder.appending(path: "work").path
        let listener = try UnixSocket.listen(at: path)
        defer { UnixSocket.close(listener) }
        let link = BrokerLink(
            .unixSocket(path), loop: loop, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let descriptor = try #require(try UnixSocket.accept(listener))
        var broker: MessageStream? = try MessageStream(
            descriptor, as: .router, frameBytes: 1 << 20, maximumMessages: 100, loop: loop
        ) {}
        var hasReady = false
        let hook = loop.addHook {
            while link.next() != nil {}
            if broker?.next() != nil { hasReady = true }
            broker?.flush()
            return link.runPass(onLost: {}, ready: { Ready(slots: 1) }) || broker?.mayHavePendingMessage == true
                ? .noSleep : .untilEvent
        }
        #expect(try loop.run(for: .seconds(60)) { hasReady })
        loop.removeHook(hook)
        link.recordAcceptance()
        broker = nil
        var losses = 0
        let end = loop.addHook {
            while link.next() != nil {}
            _ = link.runPass(onLost: { losses += 1 }, ready: { nil })
            return .untilEvent
        }
        #expect(try loop.run(for: .seconds(60)) { losses == 1 })
        loop.removeHook(end)
        #expect(!link.isAccepted)
        for flight in 1...3 as ClosedRange<UInt64> {
            let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: flight, attempt: 1)
            link.sendFailure(.failed(attempt, code: "reset", detail: nil, receivedBytes: 0), of: attempt)
        }
        #expect(link.queuedTerminalCount == 0)
    }
}
