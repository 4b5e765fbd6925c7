internal import EarshotLoop
internal import EarshotWire
internal import Logging
internal import ZMTP

/// Connections of users that are not permitted, until each has got an answer that its program can show, and the log of all
/// refused connections.
struct RefusedPeers {
    /// Maximum number of them at a time. Others are closed without an answer, so refused users occupy no more places.
    private static let mostPeers = 16
    /// Maximum length of a frame in bytes. HELLO is much shorter.
    static let frameBytes = 4_096

    /// Memory for their frames, apart from that of permitted users.
    let memory = ConnectionMemory(frameCapacity: Self.mostPeers * Self.frameBytes)
    private let logger: Logger
    private let path: String
    private var peerNumbers: Set<UInt64> = []
    /// Number of refused connections since the last warning.
    private var refusedCount = 0
    private var nextWarning = LoopTime(nanoseconds: 0)

    /// - Parameter path: Path of the socket, for the log.
    init(_ logger: Logger, _ path: String) {
        self.logger = logger
        self.path = path
    }

    /// Whether another one can get an answer.
    var hasRoom: Bool { peerNumbers.count < Self.mostPeers }

    mutating func insert(_ number: UInt64) { peerNumbers.insert(number) }

    mutating func forget(_ number: UInt64) { peerNumbers.remove(number) }

    /// Logs refused connections, at most once per second, because refused peers try again.
    mutating func log(_ reason: String, now: LoopTime) {
        refusedCount += 1
        guard now >= nextWarning else { return }
        logger.warning(
            "refused connections", metadata: ["count": "\(refusedCount)", "reason": "\(reason)", "socket": "\(path)"])
        refusedCount = 0
        nextWarning = now.advanced(by: .seconds(1))
    }

    /// Returns the head of the answer to a user.
    static func answer(to user: UInt32) -> [UInt8] {
        let reply = ErrorReply(
            code: "not-authorized",
            detail: "user \(user) may not use this bus: add it to `users` in the bus's configuration")
        return BrokerMessage.error(reply).encoded()
    }
}
