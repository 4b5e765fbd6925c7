import Testing

@testable import ZMTP

/// Greeting and READY of a connection.
@Suite struct HandshakeTests {
    /// First bytes of a DEALER connection from libzmq 4.3.4: rfc.zeromq.org/spec/37, version 3.1.
    static let libzmqGreeting: [UInt8] =
        [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1] + Array("NULL".utf8) + [UInt8](repeating: 0, count: 48)

    @Test func `the opening is a greeting of 64 bytes and READY`() {
        let opening = Handshake.greetingAndReady(as: .router)
        #expect(Array(opening[..<12]) == [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0])
        #expect(Array(opening[12..<64]) == Array("NULL".utf8) + [UInt8](repeating: 0, count: 48))
        #expect(Array(opening[64...]) == [4, 28] + Array("\u{5}READY\u{b}Socket-Type\0\0\0\u{6}ROUTER".utf8))
    }

    @Test func `what one end says of itself the other reads`() throws {
        let opening = Handshake.greetingAndReady(as: .dealer)
        let command = try #require(Handshake.splitCommand(Array(opening[66...])))
        #expect(command.name == "READY")
        #expect(Handshake.parseReady(command.rest) == Handshake.Ready(socketType: .dealer))
    }

    @Test func `the greeting of a later version is taken`() {
        #expect(Handshake.violation(in: Self.libzmqGreeting) == nil)
    }

    @Test(arguments: [(0, 0x47), (9, 0x7e), (10, 1), (10, 2), (12, 0x50)] as [(Int, UInt8)])
    func `a greeting that is none of ours is refused`(at offset: Int, _ byte: UInt8) {
        var greeting = Self.libzmqGreeting
        greeting[offset] = byte
        #expect(Handshake.violation(in: greeting) != nil)
    }

    @Test func `a READY that breaks off anywhere is none, or has fewer properties`() {
        let ready = Array(Handshake.greetingAndReady(as: .dealer)[72...])
        for count in 0..<ready.count {
            let read = Handshake.parseReady(ready.prefix(count))
            // The second property begins after 27 bytes.
            #expect(read == (count == 0 ? .init() : count == 22 ? .init(socketType: .dealer) : nil))
        }
    }

    @Test func `names of properties are found in any case`() {
        let ready = Array("\u{b}SOCKET-TYPE\0\0\0\u{6}DEALER\u{8}identity\0\0\0\u{1}x".utf8)
        #expect(Handshake.parseReady(ready[...]) == .init(socketType: .dealer))
    }

    @Test func `an identity has at most 255 bytes`() {
        func ready(identity count: UInt16) -> [UInt8] {
            Array("\u{b}Socket-Type\0\0\0\u{6}DEALER\u{8}Identity\0\0".utf8)
                + [UInt8(count >> 8), UInt8(count & 0xff)] + [UInt8](repeating: 0x78, count: Int(count))
        }
        #expect(Handshake.parseReady(ready(identity: 255)[...]) == .init(socketType: .dealer))
        #expect(Handshake.parseReady(ready(identity: 256)[...]) == nil)
    }

    @Test func `a ROUTER talks to DEALER alone`() {
        let types = ["DEALER", "ROUTER", "REQ", "REP"].map(SocketType.init)
        #expect(types.map { $0.map(SocketType.router.acceptsPeer) } == [true, false, nil, nil])
    }

    @Test(arguments: [[], [5], [0, 1], [200, 65]] as [[UInt8]])
    func `a command without a name is none`(bytes: [UInt8]) {
        #expect(Handshake.splitCommand(bytes) == nil)
    }

    @Test func `PONG says the context of its PING`() {
        #expect(Handshake.pong(to: [0, 10, 7, 8]) == [4, 7] + Array("\u{4}PONG".utf8) + [7, 8])
        #expect(Handshake.pong(to: [0]) == nil)
        #expect(Handshake.pong(to: ArraySlice([UInt8](repeating: 1, count: 19))) == nil)
    }
}
