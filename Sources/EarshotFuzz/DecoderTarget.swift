internal import Decompression

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
                precondition(step.consumed > 0 || step.produced > 0 || isFull, "a step that does nothing")
                start += step.consumed
                isFull = step.produced == room
                outcome.output += buffer.prefix(step.produced)
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
