import CLibZMQ
import EarshotLoop

@testable import EarshotClient
@testable import ZeroMQ

/// Keys of the tests, those of the manual of libzmq.
enum CurveKeys {
    static let server = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    private static let serverSecret = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
    static let client = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    static let clientSecret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

    /// Makes the socket a server of CURVE.
    static func serve(_ socket: borrowing Socket) throws {
        try socket.handle.setOption(ZMQ_CURVE_SERVER, 1 as Int32)
        try socket.handle.setOption(ZMQ_CURVE_SECRETKEY, text: serverSecret)
    }

    /// Writes a key file.
    ///
    /// - Returns: its path.
    static func file(_ name: String, in home: Home, mode: UInt32 = 0o600, _ lines: [String]? = nil) throws -> String {
        try home.folder.prepare()
        let path = "\(home.folder.path)/\(name).key"
        let lines =
            lines ?? [
                "# a key", "name = \"\(name)\"", "public-key = \"\(client)\"  # may be shown",
                "secret-key = '\(clientSecret)'",
            ]
        SystemFile.write(Array(lines.joined(separator: "\n").utf8), to: path, mode: mode)
        return path
    }

    /// Returns the endpoint of a server at `address`.
    static func endpoint(_ address: String, serverKey: String = server) throws -> BusEndpoint {
        let home = try Home()
        return try withExtendedLifetime(home) {
            try BusEndpoint(address, key: BusKey(file: file("me", in: home)), serverKey: serverKey)
        }
    }
}

/// Server of ZAP that refuses all clients of its context.
final class Doorkeeper {
    private let socket: Socket
    private let loop: EventLoop
    private var registration: EventLoop.Registration?
    private var hook: EventLoop.HookID?

    init(_ context: borrowing Context, _ loop: EventLoop) throws {
        self.loop = loop
        socket = try context.socket(.router)
        try socket.bind("inproc://zeromq.zap.01")
        registration = try loop.add(socket.descriptor, .readable) { _ in }
        hook = loop.addHook { [unowned self] in
            do {
                var parts = Multipart(capacity: 9)
                while try socket.receive(into: &parts) {
                    // Routing ID, delimiter, version and number of the request come back.
                    for index in 0..<4 { _ = try socket.send(parts.bytes(index), more: true) }
                    for text in ["400", "refused", ""] { _ = try socket.send(Array(text.utf8), more: true) }
                    _ = try socket.send([])
                }
                return try socket.readiness().contains(.readable) ? .noSleep : .untilEvent
            } catch {
                preconditionFailure("the authentication failed: \(error)")
            }
        }
    }

    deinit {
        if let registration { loop.remove(registration) }
        if let hook { loop.removeHook(hook) }
    }
}
