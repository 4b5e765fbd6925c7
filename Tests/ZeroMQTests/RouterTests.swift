import Glibc
import Testing
import ZeroMQ

/// Peers of a router that are gone, unknown or slow.
@Suite struct RouterTests {
    @Test func `a peer that is gone is unreachable`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        let identity = try connectAndLeave(context, router, endpoint)
        let outcome = try awaited(router.descriptor) { () -> SendOutcome? in
            _ = try router.readiness()
            let outcome = try router.send(identity, more: true)
            if outcome == .sent { _ = try router.send([1]) }
            return outcome == .unreachable ? outcome : nil
        }
        #expect(outcome == .unreachable)
    }

    @Test func `a peer never heard of is unreachable`() throws {
        let context = try Context.make()
        let router = try context.socket(.router)
        #expect(try router.send([0, 1, 2, 3, 4], more: true) == .unreachable)
    }

    @Test func `a peer that does not read blocks itself and nobody else`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        var options = SocketOptions()
        options.sendHighWaterMark = 10
        let router = try context.socket(.router, options)
        try router.bind(endpoint.name)

        options.receiveHighWaterMark = 10
        let paused = try context.socket(.dealer, options)
        let (deafID, readerID): ([UInt8], [UInt8])
        deafID = try introduce(paused, router, endpoint)
        let reader = try context.socket(.dealer)
        readerID = try introduce(reader, router, endpoint)

        let body = [UInt8](repeating: 7, count: 65_536)
        // Full: the queues on both sides and the kernel's buffers. A thread of libzmq that stood still may free some.
        var isFull = false
        while !isFull {
            var refusals = 0
            while refusals < 10 {
                _ = try router.readiness()
                switch try router.send(deafID, more: true) {
                case .sent:
                    #expect(try router.send(body) == .sent)
                    refusals = 0
                case .wouldBlock:
                    refusals += 1
                    wait(router.descriptor, milliseconds: 20)
                case .unreachable:
                    Issue.record("the peer is there")
                    return
                }
            }
            for number in 0..<20 {
                // Processes the messages taken by the reader, which a send does only about once per millisecond.
                _ = try router.readiness()
                #expect(try router.send(readerID, more: true) == .sent)
                #expect(try router.send([UInt8(number)]) == .sent)
                #expect(try reader.awaitReceive().bytes() == [UInt8(number)])
            }
            _ = try router.readiness()
            isFull = try router.send(deafID, more: true) == .wouldBlock
            if !isFull { #expect(try router.send(body) == .sent) }
        }
    }

    @Test func `a frame is taken out of a message with several frames`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        let dealer = try context.socket(.dealer)
        try dealer.connect(endpoint.name)
        try dealer.awaitSend([9])
        var parts = Multipart(capacity: 2)
        while try !router.receive(into: &parts) {
            try #require(wait(router.descriptor, milliseconds: 60_000))
        }
        #expect(parts.count == 2)
        let taken = parts.takeFrame(at: 1)
        #expect(taken.bytes() == [9])
    }

    /// Connects a dealer, sends one message, and returns the routing ID assigned by the router.
    private func introduce(_ dealer: borrowing Socket, _ router: borrowing Socket, _ endpoint: TestEndpoint) throws
        -> [UInt8]
    {
        try dealer.connect(endpoint.name)
        try dealer.awaitSend([0])
        return try router.awaitMessage()[0]
    }

    private func connectAndLeave(
        _ context: borrowing Context, _ router: borrowing Socket, _ endpoint: TestEndpoint
    ) throws -> [UInt8] {
        let dealer = try context.socket(.dealer)
        return try introduce(dealer, router, endpoint)
    }
}
