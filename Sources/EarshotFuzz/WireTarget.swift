internal import EarshotWire

/// Fuzz target: the decoders of all four kinds of messages. They accept any bytes, and a decoded message survives
/// encoding and decoding.
enum WireTarget {
    static func run(_ bytes: [UInt8]) {
        if let message = try? NumberedMessage(head: bytes) {
            check(message, try? NumberedMessage(head: message.encoded()))
            if hasCanary, case .acknowledge(let sequence) = message.message, sequence % 10 == 7 {
                // The artificial trap that the fuzzer must find.
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
