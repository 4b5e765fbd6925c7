internal import Decompression
internal import EarshotWire
internal import RESP
internal import TOML

/// Fuzz target: the decoders of all four kinds of messages. They accept any bytes, and a decoded message survives
/// encoding and decoding.
enum WireTarget {
    static func run(_ bytes: [UInt8]) {
        if let message = try? NumberedMessage(head: bytes) {
            checkRoundTrip(message, try? NumberedMessage(head: message.encoded()))
            if hasCanary, case .acknowledge(let sequence) = message.message, sequence % 10 == 7 {
                // The artificial trap that the fuzzer must find.
                fatalError("the canary")
            }
        }
        if let message = try? BrokerMessage(head: bytes) {
            checkRoundTrip(message, try? BrokerMessage(head: message.encoded()))
        }
        if let message = try? WorkerMessage(head: bytes) {
            checkRoundTrip(message, try? WorkerMessage(head: message.encoded()))
        }
        if let message = try? PoolMessage(head: bytes) {
            checkRoundTrip(message, try? PoolMessage(head: message.encoded()))
        }
    }

    private static func checkRoundTrip<Message: Equatable>(_ message: Message, _ again: Message?) {
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
            let table = try TOMLReader.parse(bytes)
            for key in table.keys { precondition(table[key] != nil, "the key \(key) has no value") }
        } catch {
            let lines = bytes.count { $0 == UInt8(ascii: "\n") } + 1
            precondition((1...lines).contains(error.line), "line \(error.line) of \(lines): \(error.message)")
        }
    }
}

/// Fuzz target: a decompressor with arbitrary input. The output and the end of the stream must not depend on how the
/// input is split. Corruption may be detected in only one of the two cases.
///
/// The first byte selects the format, by its remainder, and the number of bytes per step.
enum DecoderTarget {
    /// Result of one input.
    private struct Outcome: Equatable {
        var output: [UInt8] = []
        var isAtEnd = false
        var isDamaged = false
    }

    /// Maximum number of output bytes compared, so that decompression bombs stay fast.
    private static let outputBytes = 1 << 16

    static func run(_ bytes: [UInt8]) {
        guard let first = bytes.first else { return }
        let formats = CompressionFormat.allCases
        let format = formats[Int(first) % formats.count]
        let input = Array(bytes.dropFirst())
        let whole = outcome(of: input, format, pieceBytes: max(1, input.count), room: 1 << 12)
        let inPieces = outcome(of: input, format, pieceBytes: Int(first) / formats.count + 1, room: 61)
        // The split determines how far a corrupt stream is read. libzstd detects some corruption only in a complete
        // frame, such as a wrong content size before an empty block.
        guard !whole.isDamaged, !inPieces.isDamaged else { return }
        precondition(whole == inPieces, "\(whole.output.count) bytes, and in pieces \(inPieces.output.count)")
    }

    private static func outcome(of input: [UInt8], _ format: CompressionFormat, pieceBytes: Int, room: Int) -> Outcome {
        var decompressor = Decompressor(format)
        var buffer = [UInt8](repeating: 0, count: room)
        var outcome = Outcome()
        var start = 0
        var isFull = false
        while start < input.count || isFull, outcome.output.count < outputBytes {
            let end = min(input.count, start + pieceBytes)
            do throws(DecompressionError) {
                let step = try decompressor.step(input.span.extracting(start..<end), into: &buffer)
                precondition(step.consumedBytes > 0 || step.producedBytes > 0 || isFull, "a step that does nothing")
                start += step.consumedBytes
                isFull = step.producedBytes == room
                outcome.output += buffer.prefix(step.producedBytes)
                outcome.isAtEnd = step.isAtEnd
            } catch {
                outcome.isDamaged = true
                return outcome
            }
        }
        // Both outputs are equal so far; the rest is not compared.
        if outcome.output.count >= outputBytes {
            outcome.output.removeLast(outcome.output.count - outputBytes)
            outcome.isAtEnd = false
        }
        return outcome
    }
}
