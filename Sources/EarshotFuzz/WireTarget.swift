internal import EarshotWire

/// The decoders of all four kinds of messages: they take any bytes, and what they read they read again when it is
/// written.
enum WireTarget {
    static func run(_ bytes: [UInt8]) {
        if let message = try? ClientMessage(head: bytes) {
            check(message, try? ClientMessage(head: message.encoded()))
            if hasCanary, case .acknowledge(let sequence) = message, sequence % 10 == 7 {
                // What the fuzzer is to find.
                fatalError("the canary")
            }
        }
        if let message = try? BrokerMessage(head: bytes) { check(message, try? BrokerMessage(head: message.encoded())) }
        if let message = try? WorkerMessage(head: bytes) { check(message, try? WorkerMessage(head: message.encoded())) }
        if let message = try? PoolMessage(head: bytes) { check(message, try? PoolMessage(head: message.encoded())) }
    }

    private static func check<Message: Equatable>(_ message: Message, _ again: Message?) {
        precondition(again == message, "\(message) is read again as \(String(describing: again))")
    }
}
