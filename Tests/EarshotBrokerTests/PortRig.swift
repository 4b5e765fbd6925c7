import EarshotLoop
import Foundation
import Logging
import Testing
import ZMTP

@testable import EarshotBroker

/// A port in a temporary folder, and the events that it reported.
final class PortRig {
    /// A peer in this process, which reads while `isReading` is true.
    final class Peer {
        fileprivate let stream: MessageStream
        var isReading = true
        fileprivate(set) var heads: [String] = []
        var isOpen: Bool { stream.isOpen }
        var isEnded: Bool { stream.isEnded }

        init(_ path: String, _ loop: EventLoop) throws {
            stream = try MessageStream(
                try UnixSocket.connect(to: path), as: .dealer, frameBytes: 4 << 20, maximumMessages: 100_000, loop: loop
            ) {}
        }

        /// Writes bytes after the messages, which all left.
        func write(_ bytes: [UInt8]) -> Bool {
            let sent = unsafe bytes.withUnsafeBytes { unsafe UnixSocket.send(stream.descriptor, $0) }
            return sent == .bytesTransferred(bytes.count)
        }

        func send(_ heads: String...) {
            for head in heads { _ = stream.send(Message(head: Array(head.utf8))) }
            stream.flush()
        }
    }

    let loop: EventLoop
    let port: StreamPort
    let path: String
    /// One line for each event: `connected 1`, `message 1 HEAD`, `surplus 1 HEAD`, `lost 1`.
    private(set) var events: [String] = []
    private let folder = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"
    private var peers: [Peer] = []
    private var hook: EventLoop.HookID?
    /// Message after which the port holds its peer, until this is nil.
    var heldAfter: String?
    /// Whether the port processes input.
    var isTaking = true

    init(_ bounds: PortBounds = .forClients, connectionLimit: Int = 100) throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        path = folder + "/bus"
        loop = try EventLoop()
        port = try StreamPort(
            path, loop, frameBytes: 1 << 20, bounds: bounds, connectionLimit: connectionLimit,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        hook = loop.addHook { [unowned self] in pass() }
    }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    /// Returns a peer after its handshake, or after the port has refused it.
    func peer() throws -> Peer {
        let peer = try Peer(path, loop)
        peers.append(peer)
        _ = try reaches { peer.isOpen || peer.isEnded }
        return peer
    }

    /// Returns peers that have sent `hello`, which are reported in this order.
    func greeted(_ count: Int) throws -> [Peer] {
        try (0..<count).map { _ in
            let reported = events.count
            let peer = try peer()
            peer.send("hello")
            try #require(try reaches { events.count == reported + 2 })
            return peer
        }
    }

    /// Returns a peer that has sent `hello` and does not read.
    func stopped() throws -> Peer {
        let peer = try greeted(1)[0]
        peer.isReading = false
        return peer
    }

    /// Ends a peer's connection.
    func drop(_ peer: Peer) {
        UnixSocket.shutDown(peer.stream.descriptor)
        peers.removeAll { $0 === peer }
    }

    /// Runs the loop until the condition holds, for a minute at most.
    func reaches(_ condition: () -> Bool) throws -> Bool { try loop.run(for: .seconds(60), until: condition) }

    func send(_ head: String, to peer: UInt64, as kind: StreamPort.MessageKind = .reply) -> StreamPort.SendResult {
        port.send(Array(head.utf8), to: peer, as: kind)
    }

    private func pass() -> EventLoop.SleepLimit {
        if isTaking {
            port.processInput { event in
                events.append(Self.line(event))
                if case .message(let peer, let head, _) = event, head == heldAfter.map({ Array($0.utf8) }) {
                    port.pauseReading(peer)
                }
                return 1
            }
            port.resumeReading { _ in heldAfter != nil }
            port.flush()
        }
        for peer in peers where peer.isReading {
            while let message = peer.stream.next() { peer.heads.append(String(decoding: message.head, as: UTF8.self)) }
            peer.stream.flush()
        }
        let isBusy =
            isTaking && port.hasPendingInput || peers.contains { $0.isReading && $0.stream.mayHavePendingMessage }
        return isBusy ? .noSleep : .untilEvent
    }

    private static func line(_ event: PortEvent) -> String {
        switch event {
        case .connected(let peer): "connected \(peer)"
        case .message(let peer, let head, _): "message \(peer) \(String(decoding: head, as: UTF8.self))"
        case .excessFrames(let peer, let head): "surplus \(peer) \(String(decoding: head, as: UTF8.self))"
        case .lost(let peer, _, _): "lost \(peer)"
        }
    }
}
