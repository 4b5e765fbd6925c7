/// Handshake of a connection: rfc.zeromq.org/spec/23, version 3.0, mechanism NULL.
enum Handshake {
    /// Length of a greeting in bytes.
    static let greetingBytes = 64
    /// Maximum length of a command in bytes. READY carries an identity of up to 255 bytes and some properties.
    static let maximumCommandBytes = 4_096

    private static let nullMechanism = Array("NULL".utf8) + [UInt8](repeating: 0, count: 16)
    private static let socketType = Array("socket-type".utf8)
    private static let identity = Array("identity".utf8)
    private static let maximumIdentityBytes = 255

    /// Relevant properties of a READY. Others are ignored, including `Identity`: a connection is identified by its
    /// descriptor, so two peers may choose the same routing ID.
    struct Ready: Equatable {
        var socketType: SocketType?
    }

    /// Returns a greeting, followed by a READY.
    static func greetingAndReady(as type: SocketType) -> [UInt8] {
        var bytes: [UInt8] = [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0] + nullMechanism
        bytes += [UInt8](repeating: 0, count: greetingBytes - bytes.count)
        var ready = encodedName("READY") + encodedName("Socket-Type") + encodedValue(Array(type.rawValue.utf8))
        // Property of peers of a ROUTER. Empty: the ROUTER assigns a routing ID.
        if type != .router { ready += encodedName("Identity") + encodedValue([]) }
        return bytes + Frame.encodedHeader(count: ready.count, isCommand: true) + ready
    }

    /// - Returns: Reason to refuse a greeting; nil to accept it.
    static func violation(in greeting: [UInt8]) -> String? {
        guard greeting[0] == 0xff, greeting[9] & 1 == 1 else { return "what connected does not speak ZMTP" }
        guard greeting[10] >= 3 else { return "a peer speaks a version of ZMTP before 3.0" }
        guard Array(greeting[12..<32]) == nullMechanism else { return "a peer wants another mechanism than NULL" }
        return nil
    }

    /// Splits a command into its name and the rest; nil if it is malformed.
    static func splitCommand(_ bytes: [UInt8]) -> (name: String, rest: ArraySlice<UInt8>)? {
        guard let length = bytes.first, length > 0, bytes.count > length else { return nil }
        return (String(decoding: bytes[1...Int(length)], as: UTF8.self), bytes[(Int(length) + 1)...])
    }

    /// Parses the properties of a READY; nil if they are malformed.
    static func parseReady(_ bytes: ArraySlice<UInt8>) -> Ready? {
        var ready = Ready()
        var rest = bytes
        while let nameBytes = rest.popFirst() {
            guard rest.count >= Int(nameBytes) + 4 else { return nil }
            let name = rest.prefix(Int(nameBytes)).map { (0x41...0x5a).contains($0) ? $0 | 0x20 : $0 }
            rest = rest.dropFirst(Int(nameBytes))
            let count = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(4)
            guard rest.count >= count, name != identity || count <= maximumIdentityBytes else { return nil }
            let value = rest.prefix(count)
            rest = rest.dropFirst(count)
            if name == socketType { ready.socketType = SocketType(rawValue: String(decoding: value, as: UTF8.self)) }
        }
        return ready
    }

    /// Returns the PONG for a PING with the same context, ignoring its time to live; nil for a malformed PING. PING
    /// belongs to version 3.1, but libzmq sends it to version 3.0 peers if heartbeats are enabled.
    static func pong(to ping: ArraySlice<UInt8>) -> [UInt8]? {
        guard ping.count >= 2, ping.count <= 18 else { return nil }
        let pong = encodedName("PONG") + ping.dropFirst(2)
        return Frame.encodedHeader(count: pong.count, isCommand: true) + pong
    }

    private static func encodedName(_ text: String) -> [UInt8] { [UInt8(text.utf8.count)] + Array(text.utf8) }

    private static func encodedValue(_ bytes: [UInt8]) -> [UInt8] { [0, 0, 0, UInt8(bytes.count)] + bytes }
}

/// Type of a socket, and the types it is compatible with: rfc.zeromq.org/spec/28. A router here refuses other routers,
/// because the broker only talks to clients and workers.
public enum SocketType: String, Sendable {
    case dealer = "DEALER"
    case router = "ROUTER"

    func acceptsPeer(_ other: SocketType) -> Bool {
        switch self {
        case .dealer: true
        case .router: other == .dealer
        }
    }
}
