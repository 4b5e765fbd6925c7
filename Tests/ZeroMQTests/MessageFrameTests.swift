import Glibc
import Testing
import ZeroMQ

/// Frames of messages, their bounds, and errors of libzmq.
@Suite struct MessageFrameTests {
    @Test func `a message that was sent is empty, one that was not is whole`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let dealer = try context.socket(.dealer)
        var message = try MessageFrame.make([1, 2, 3])
        #expect(try dealer.send(&message) == .wouldBlock)
        #expect(message.bytes() == [1, 2, 3])
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        try dealer.connect(endpoint.name)
        try dealer.awaitSend(&message)
        #expect(message.count == 0)
        #expect(try router.awaitMessage().last == [1, 2, 3])
    }

    @Test func `parts beyond the bound are drained and counted`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        let dealer = try context.socket(.dealer)
        try dealer.connect(endpoint.name)
        try dealer.awaitSend([0], more: true)
        for _ in 0..<100 { #expect(try dealer.send([UInt8](repeating: 1, count: 50), more: true) == .sent) }
        #expect(try dealer.send([2]) == .sent)
        #expect(try dealer.send([3]) == .sent)

        var parts = Multipart(capacity: 3)
        try awaitMessage(router, &parts)
        #expect(parts.count == 3)
        #expect(parts.byteCount(2) == 50)
        // The routing ID and 102 frames, of which three are stored.
        #expect(parts.surplusFrames == 100)
        try awaitMessage(router, &parts)
        #expect(parts.count == 2)
        #expect(parts.surplusFrames == 0)
        #expect(parts.bytes(1) == [3])
    }

    @Test func `a frame over the limit ends its connection and the next one stands`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        var options = SocketOptions()
        options.maximumFrameBytes = 1000
        let router = try context.socket(.router, options)
        let monitor = try Monitor.make(of: router)
        try router.bind(endpoint.name)
        let rude = try context.socket(.dealer)
        try rude.connect(endpoint.name)
        try rude.awaitSend([UInt8](repeating: 0, count: 1001))
        _ = try awaited(monitor.descriptor) {
            while let event = try monitor.next() { if event.kind == .disconnected { return event } }
            return nil
        }
        let polite = try context.socket(.dealer)
        try polite.connect(endpoint.name)
        try polite.awaitSend([UInt8](repeating: 1, count: 1000))
        #expect(try router.awaitMessage().last?.count == 1000)
    }

    @Test func `an error says which call failed and why`() throws {
        let context = try Context.make()
        let socket = try context.socket(.dealer)
        let error = try #require(throws: ZeroMQError.self) { try socket.connect("nonsense") }
        #expect(error.functionName == "zmq_connect")
        #expect(error.errorNumber == EINVAL)
        #expect(error.description == "zmq_connect: Invalid argument")
    }

    private func awaitMessage(_ socket: borrowing Socket, _ parts: inout Multipart) throws {
        while try !socket.receive(into: &parts) {
            try #require(wait(socket.descriptor, milliseconds: 60_000))
        }
    }
}
