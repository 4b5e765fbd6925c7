import EarshotLoop
import Foundation
import Testing
import ZeroMQ

@testable import ZMTP

/// Interoperability with libzmq in both directions.
@Suite struct LibraryTests {
    private let path = FileManager.default.temporaryDirectory.appending(path: "zmtp-\(UUID().uuidString.prefix(8))")
        .path

    @Test(arguments: [0, 1, 255, 256, 65_536, 1_000_000])
    func `a DEALER of libzmq talks to a stream`(count: Int) throws {
        let body = [UInt8](repeating: 5, count: count)
        let listener = try UnixSocket.listen(at: path)
        defer { UnixSocket.close(listener) }
        let context = try Context.make()
        let dealer = try context.socket(.dealer)
        try dealer.connect("ipc://\(path)")
        let loop = try EventLoop()
        var end: StreamEnd?
        _ = try loop.add(listener, .readable) { _ in
            end = (try? UnixSocket.accept(listener)).flatMap { $0 }.flatMap { try? StreamEnd($0, as: .router, loop) }
        }
        _ = try loop.add(dealer.descriptor, .readable) { _ in }
        #expect(try loop.run(for: .seconds(60)) { (try? dealer.send([1], more: true)) == .sent })
        #expect(try dealer.send(body) == .sent)
        #expect(try loop.run(for: .seconds(60)) { end?.messages.count == 1 })
        let message = try #require(end?.messages.first)
        #expect(message.head == [1])
        #expect(message.body == body)
        #expect(end?.stream.peerType == .dealer)
        #expect(end?.stream.send(ZMTP.Message(head: [2], body: body)) == true)
        var parts = Multipart(capacity: 2)
        try #require(try loop.run(for: .seconds(60)) { (try? dealer.receive(into: &parts)) == true })
        #expect(parts.bytes(0) == [2])
        #expect(parts.bytes(1) == body)
    }

    @Test func `a stream talks to a ROUTER of libzmq, and again after it was ended`() throws {
        let context = try Context.make()
        let router = try context.socket(.router)
        try router.bind("ipc://\(path)")
        let loop = try EventLoop()
        _ = try loop.add(router.descriptor, .readable) { _ in }
        for round in 0..<2 as Range<UInt8> {
            let end = try StreamEnd(try UnixSocket.connect(to: path), as: .dealer, loop)
            #expect(!end.stream.send(ZMTP.Message(head: [round])))
            #expect(try loop.run(for: .seconds(60)) { end.stream.isOpen })
            #expect(end.stream.send(ZMTP.Message(head: [round], body: [3])))
            var parts = Multipart(capacity: 3)
            try #require(try loop.run(for: .seconds(60)) { (try? router.receive(into: &parts)) == true })
            #expect(parts.bytes(1) == [round])
            #expect(parts.bytes(2) == [3])
            _ = try router.send(parts.bytes(0), more: true)
            _ = try router.send([4])
            #expect(try loop.run(for: .seconds(60)) { end.messages.count == 1 })
            #expect(end.messages.first == ZMTP.Message(head: [4]))
        }
    }
}
