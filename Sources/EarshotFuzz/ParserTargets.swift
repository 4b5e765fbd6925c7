internal import EarshotWire
internal import RESP
internal import TOML

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

/// Fuzz target: replies of a cluster's engine. The result does not depend on how the input is split.
///
/// The first byte is the number of bytes per piece.
enum ReplyTarget {
    private static let replyBytes = 512

    static func run(_ bytes: [UInt8]) {
        guard let pieceBytes = bytes.first, pieceBytes > 0 else { return }
        let input = bytes.dropFirst()
        let single = outcome(of: input, pieceBytes: 1)
        let pieces = outcome(of: input, pieceBytes: Int(pieceBytes))
        // More pieces detect a reply above the bound earlier.
        guard single.isSound, pieces.isSound else { return }
        precondition(single.replies == pieces.replies, "\(single.replies), and in pieces \(pieces.replies)")
    }

    private static func outcome(of input: ArraySlice<UInt8>, pieceBytes: Int) -> (replies: [Reply], isSound: Bool) {
        var reader = ReplyReader(maximumReplyBytes: replyBytes)
        var replies: [Reply] = []
        var rest = input
        while !rest.isEmpty {
            do throws(ReplyReader.MalformedReply) {
                try reader.feed(rest.prefix(pieceBytes), into: &replies)
            } catch {
                return (replies, false)
            }
            rest = rest.dropFirst(pieceBytes)
        }
        return (replies, true)
    }
}

/// Fuzz target: the reader of settings files. An error names a line of the text.
enum TOMLTarget {
    static func run(_ bytes: [UInt8]) {
        do throws(TOMLReader.Fault) {
            let table = try TOMLReader.table(bytes)
            for key in table.keys { precondition(table[key] != nil, "the key \(key) has no value") }
        } catch {
            let lines = bytes.count { $0 == UInt8(ascii: "\n") } + 1
            precondition((1...lines).contains(error.line), "line \(error.line) of \(lines): \(error.sentence)")
        }
    }
}
