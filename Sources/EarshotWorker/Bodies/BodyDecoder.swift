internal import Decompression
internal import EarshotHTTP

/// Incremental decoder for the content codings of one body.
///
/// Between steps it holds the encoded bytes of one call of libcurl, and with two codings one piece between the
/// decoders.
struct BodyDecoder: ~Copyable {
    /// Reason to abandon the body.
    enum Fault: Error, Hashable {
        /// The bytes are invalid in their coding.
        case damaged
        /// The ratio of decoded to encoded bytes exceeds the limit.
        case tooCompressed
        /// Too many encoded bytes decode to nothing.
        case empty
    }

    /// Decompressor of the coding that was applied last.
    private var outerDecompressor: Decompressor
    /// Decompressor of the coding applied before it; nil for a single coding.
    private var innerDecompressor: Decompressor?
    private let maxRatio: Int
    /// Received encoded bytes. Those from `inputStart` on are not decoded yet.
    private var input: [UInt8] = []
    private var inputStart = 0
    /// Output of `outerDecompressor` and input of `innerDecompressor`; empty for a single coding.
    private var intermediateBytes: [UInt8] = []
    /// Range of `intermediateBytes` that `innerDecompressor` has not read.
    private var betweenLeft = 0..<0
    /// Whether the last step filled its output, so that the next may produce more without input.
    private var isOuterFull = false
    private var isInnerFull = false
    /// Whether the streams have ended.
    private var isOuterAtEnd = false
    private var isInnerAtEnd = false
    /// Number of decoded input bytes.
    private var consumedBytes = 0
    private var outerProduced = 0
    private var innerConsumed = 0
    private var innerProduced = 0

    /// - Parameters:
    ///   - codings: One or two codings, the one applied last first.
    ///   - maxRatio: Maximum number of decoded bytes for each encoded byte; 0 for no limit.
    init(_ codings: [ContentCoding], maxRatio: Int) {
        precondition((1...HTTPLimits.contentCodings).contains(codings.count), "\(codings.count) codings")
        self.maxRatio = maxRatio
        outerDecompressor = Decompressor(CompressionFormat(codings[0]))
        if codings.count > 1 {
            innerDecompressor = Decompressor(CompressionFormat(codings[1]))
            intermediateBytes = [UInt8](repeating: 0, count: Limits.betweenBytes)
        }
    }

    /// Creates the decoder of a response's body; nil for a body that is stored unchanged. That is a body without
    /// coding, with an unknown coding, or a part of an encoded body, which cannot be decoded alone.
    init?(for head: ResponseHead, maxRatio: Int) {
        guard head.mayHave("content-encoding"), head.status != 206 else { return nil }
        let codings = HeaderFields(lines: head.fields).codingsToUndo
        guard !codings.isEmpty else { return nil }
        self.init(codings, maxRatio: maxRatio)
    }

    /// Whether a step is possible without further input.
    var hasWork: Bool { inputStart < input.count || isOuterFull || isInnerFull || !betweenLeft.isEmpty }

    /// Whether the body may end here: at the end of its streams, or before their first byte.
    var isAtEnd: Bool {
        guard !hasWork, consumedBytes > 0 else { return !hasWork }
        return isOuterAtEnd && (isInnerAtEnd || outerProduced == 0 || innerDecompressor == nil)
    }

    /// Whether the ratio of decoded to encoded bytes exceeds the limit, even for a small body.
    var isOverRatio: Bool {
        maxRatio > 0 && max(outerProduced, innerProduced) / max(consumedBytes, 1) > maxRatio
    }

    /// Appends encoded bytes. All earlier bytes must be decoded.
    mutating func add(_ bytes: Span<UInt8>) {
        precondition(inputStart == input.count, "\(input.count - inputStart) bytes are not decoded yet")
        input.removeAll(keepingCapacity: true)
        inputStart = 0
        unsafe bytes.withUnsafeBufferPointer { unsafe input.append(contentsOf: $0) }
    }

    /// Performs one decoding step.
    ///
    /// - Parameter output: Overwritten from its start.
    /// - Returns: Number of bytes in `output`, and number of bytes that the step decoded, including those between two
    ///   codings.
    mutating func step(into output: inout [UInt8]) throws(Fault) -> (produced: Int, work: Int) {
        guard innerDecompressor != nil else {
            let produced = try outerStep(into: &output)
            return (produced, produced)
        }
        guard !betweenLeft.isEmpty || isInnerFull else {
            // Moved out of the decoder, because the step below needs exclusive access to both.
            var piece: [UInt8] = []
            swap(&piece, &intermediateBytes)
            defer { swap(&piece, &intermediateBytes) }
            let produced = try outerStep(into: &piece)
            betweenLeft = 0..<produced
            return (0, produced)
        }
        let produced = try innerStep(into: &output)
        return (produced, produced)
    }

    private mutating func outerStep(into output: inout [UInt8]) throws(Fault) -> Int {
        // The decompressor and its input belong to one value, so the input is moved out for exclusive access.
        var bytes: [UInt8] = []
        swap(&bytes, &input)
        defer { swap(&bytes, &input) }
        let step: Decompressor.Step
        do throws(DecompressionError) {
            step = try outerDecompressor.step(bytes.span.extracting(inputStart..<bytes.count), into: &output)
        } catch {
            throw .damaged
        }
        let isStuck = step.consumed == 0 && step.produced == 0 && inputStart < bytes.count
        inputStart += step.consumed
        consumedBytes += step.consumed
        outerProduced += step.produced
        isOuterAtEnd = step.isAtEnd
        isOuterFull = step.produced == output.count
        try check(consumedBytes, outerProduced, isStuck: isStuck)
        return step.produced
    }

    private mutating func innerStep(into output: inout [UInt8]) throws(Fault) -> Int {
        var bytes: [UInt8] = []
        swap(&bytes, &intermediateBytes)
        defer { swap(&bytes, &intermediateBytes) }
        let step: Decompressor.Step?
        do throws(DecompressionError) {
            step = try innerDecompressor?.step(bytes.span.extracting(betweenLeft), into: &output)
        } catch {
            throw .damaged
        }
        guard let step else { preconditionFailure("a second step with a single coding") }
        let isStuck = step.consumed == 0 && step.produced == 0 && !betweenLeft.isEmpty
        betweenLeft = betweenLeft.dropFirst(step.consumed)
        innerConsumed += step.consumed
        innerProduced += step.produced
        isInnerAtEnd = step.isAtEnd
        isInnerFull = step.produced == output.count
        try check(innerConsumed, innerProduced, isStuck: isStuck)
        return step.produced
    }

    private func check(_ consumed: Int, _ produced: Int, isStuck: Bool) throws(Fault) {
        guard !isStuck else { throw .damaged }
        guard consumed <= Limits.emptyCodedBytes || consumed / Limits.codedBytesPerByte <= produced else {
            throw isOverRatio ? .tooCompressed : .empty
        }
        guard produced <= Limits.freeDecodedBytes || !isOverRatio else { throw .tooCompressed }
    }
}

extension CompressionFormat {
    fileprivate init(_ coding: ContentCoding) {
        switch coding {
        case .gzip: self = .gzip
        case .deflate: self = .deflate
        case .brotli: self = .brotli
        case .zstd: self = .zstd
        }
    }
}
