import CLibZMQ
import Testing

@testable import ZeroMQ

/// Connections over tcp with keys of CURVE.
@Suite struct CurveTests {
    private static let server = ("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6")
    private static let client = ("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs")

    /// Listens at a free port of the loopback interface.
    private static func listen(_ router: borrowing Socket) throws -> String {
        try router.handle.setOption(ZMQ_CURVE_SERVER, 1 as Int32)
        try router.handle.setOption(ZMQ_CURVE_SECRETKEY, text: server.1)
        try router.bind("tcp://127.0.0.1:*")
        return try router.lastEndpoint()
    }

    private static func keys(server: String = server.0) -> CurveClient {
        CurveClient(serverKey: server, publicKey: client.0, secretKey: client.1)
    }

    /// Returns the kind of the first event for which `isWanted` returns true.
    private static func event(
        _ monitor: borrowing Monitor, _ isWanted: (Monitor.Event.Kind) -> Bool
    ) throws -> Monitor.Event.Kind {
        try awaited(monitor.descriptor) {
            while let event = try monitor.next() { if isWanted(event.kind) { return event.kind } }
            return nil
        }
    }

    @Test func `no public key looks like an option`() throws {
        // One of 85 random keys would.
        for _ in 0..<600 { #expect(try !CurveKeyPair.make().publicKey.hasPrefix("-")) }
    }

    @Test func `messages pass over tcp between two ends that know each other's keys`() throws {
        let context = try Context.make()
        let router = try context.socket(.router)
        let endpoint = try Self.listen(router)
        let dealer = try context.socket(.dealer)
        try dealer.useCurve(Self.keys())
        try dealer.connect(endpoint)
        try dealer.awaitSend([1, 2, 3])
        #expect(try router.awaitMessage().last == [1, 2, 3])
    }

    @Test func `a wrong server key fails the handshake`() throws {
        let context = try Context.make()
        let router = try context.socket(.router)
        let endpoint = try Self.listen(router)
        let dealer = try context.socket(.dealer)
        let monitor = try Monitor.make(of: dealer)
        try dealer.useCurve(Self.keys(server: Self.client.0))
        try dealer.connect(endpoint)
        let kind = try Self.event(monitor) { $0 == .handshakeSucceeded || $0 == .handshakeFailed }
        #expect(kind == .handshakeFailed)
    }

    @Test func `a server without CURVE is invalid`() throws {
        let context = try Context.make()
        let router = try context.socket(.router)
        try router.bind("tcp://127.0.0.1:*")
        let dealer = try context.socket(.dealer)
        let monitor = try Monitor.make(of: dealer)
        try dealer.useCurve(Self.keys())
        try dealer.connect(try router.lastEndpoint())
        let kind = try Self.event(monitor) { [.handshakeSucceeded, .handshakeFailed, .handshakeInvalid].contains($0) }
        #expect(kind == .handshakeInvalid)
    }

    @Test func `a connection without a server is reported`() throws {
        let context = try Context.make()
        let dealer = try context.socket(.dealer)
        let monitor = try Monitor.make(of: dealer)
        try dealer.useCurve(Self.keys())
        try dealer.connect("tcp://127.0.0.1:1")
        let kind = try Self.event(monitor) { [.handshakeSucceeded, .closed, .connectRetried].contains($0) }
        #expect(kind == .closed)
    }

    @Test func `keys have 40 characters of Z85`() {
        for key in [Self.server.0, Self.server.1, Self.client.0, Self.client.1] { #expect(CurveClient.isKey(key)) }
        for text in [
            "", "abc", String(repeating: "a", count: 39), String(repeating: "a", count: 41),
            String(repeating: "a", count: 39) + "\"", String(repeating: "é", count: 20),
            // The first group exceeds 32 bits.
            "#####" + String(repeating: "0", count: 35),
        ] { #expect(!CurveClient.isKey(text)) }
    }
}
