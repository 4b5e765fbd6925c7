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
        case invalidEncoding
        /// The ratio of decoded to encoded bytes exceeds the limit.
        case decodingRatioExceeded
        /// Too many encoded bytes decode to nothing.
        case emptyOutput
    }

    /// Decompressor of the coding that was applied last.
    private var outerDecompressor: Decompressor
    /// Decompressor of the coding applied before it; nil for a single coding.
    private var innerDecompressor: Decompressor?
    private let maximumDecodingRatio: Int
    /// Received encoded bytes. Those from `undecodedInputStart` on are not decoded yet.
    private var encodedInput: [UInt8] = []
    private var undecodedInputStart = 0
    /// Output of `outerDecompressor` and input of `innerDecompressor`; empty for a single coding.
    private var intermediateBytes: [UInt8] = []
    /// Range of `intermediateBytes` that `innerDecompressor` has not read.
    private var unreadIntermediateRange = 0..<0
    /// Whether the last step filled its output, so that the next may produce more without input.
    private var isOuterOutputFull = false
    private var isInnerOutputFull = false
    /// Whether the streams have ended.
    private var isOuterAtEnd = false
    private var isInnerAtEnd = false
    /// Number of decoded input bytes.
    private var consumedBytes = 0
    private var outerProducedBytes = 0
    private var innerConsumedBytes = 0
    private var innerProducedBytes = 0

    /// - Parameters:
    ///   - codings: One or two codings, the one applied last first.
    ///   - maximumDecodingRatio: Maximum number of decoded bytes for each encoded byte; 0 for no limit.
    init(_ codings: [ContentCoding], maximumDecodingRatio: Int) {
        precondition((1...HTTPLimits.contentCodings).contains(codings.count), "\(codings.count) codings")
        self.maximumDecodingRatio = maximumDecodingRatio
        outerDecompressor = Decompressor(CompressionFormat(codings[0]))
        if codings.count > 1 {
            innerDecompressor = Decompressor(CompressionFormat(codings[1]))
            intermediateBytes = [UInt8](repeating: 0, count: Limits.intermediateBufferBytes)
        }
    }

    /// Creates the decoder of a response's body; nil for a body that is stored unchanged. That is a body without
    /// coding, with an unknown coding, or a part of an encoded body, which cannot be decoded alone.
    init?(for head: ResponseHead, maximumDecodingRatio: Int) {
        guard head.mayHaveField(named: "content-encoding"), head.status != 206 else { return nil }
        let codings = HeaderFields(lines: head.fields).codingsToDecode
        guard !codings.isEmpty else { return nil }
        self.init(codings, maximumDecodingRatio: maximumDecodingRatio)
    }

    /// Whether a step is possible without further input.
    var hasUndecodedBytes: Bool {
        undecodedInputStart < encodedInput.count || isOuterOutputFull || isInnerOutputFull
            || !unreadIntermediateRange.isEmpty
    }

    /// Whether the body may end here: at the end of its streams, or before their first byte.
    var mayEndHere: Bool {
        guard !hasUndecodedBytes, consumedBytes > 0 else { return !hasUndecodedBytes }
        return isOuterAtEnd && (isInnerAtEnd || outerProducedBytes == 0 || innerDecompressor == nil)
    }

    /// Whether the ratio of decoded to encoded bytes exceeds the limit, even for a small body.
    var exceedsDecodingRatio: Bool {
        maximumDecodingRatio > 0
            && max(outerProducedBytes, innerProducedBytes) / max(consumedBytes, 1) > maximumDecodingRatio
    }

    /// Appends encoded bytes. All earlier bytes must be decoded.
    mutating func appendEncoded(_ bytes: Span<UInt8>) {
        precondition(
            undecodedInputStart == encodedInput.count,
            "\(encodedInput.count - undecodedInputStart) bytes are not decoded yet")
        encodedInput.removeAll(keepingCapacity: true)
        undecodedInputStart = 0
        unsafe bytes.withUnsafeBufferPointer { unsafe encodedInput.append(contentsOf: $0) }
    }

    /// Performs one decoding step.
    ///
    /// - Parameter output: Overwritten from its start.
    /// - Returns: Number of bytes in `output`, and number of bytes that the step decoded, including those between two
    ///   codings.
    mutating func decodeStep(into output: inout [UInt8]) throws(Fault) -> (produced: Int, work: Int) {
        guard innerDecompressor != nil else {
            let produced = try decodeOuterStep(into: &output)
            return (produced, produced)
        }
        guard !unreadIntermediateRange.isEmpty || isInnerOutputFull else {
            // Moved out of the decoder, because the step below needs exclusive access to both.
            var piece: [UInt8] = []
            swap(&piece, &intermediateBytes)
            defer { swap(&piece, &intermediateBytes) }
            let produced = try decodeOuterStep(into: &piece)
            unreadIntermediateRange = 0..<produced
            return (0, produced)
        }
        let produced = try decodeInnerStep(into: &output)
        return (produced, produced)
    }

    private mutating func decodeOuterStep(into output: inout [UInt8]) throws(Fault) -> Int {
        // The decompressor and its input belong to one value, so the input is moved out for exclusive access.
        var bytes: [UInt8] = []
        swap(&bytes, &encodedInput)
        defer { swap(&bytes, &encodedInput) }
        let step: Decompressor.Step
        do throws(DecompressionError) {
            step = try outerDecompressor.step(bytes.span.extracting(undecodedInputStart..<bytes.count), into: &output)
        } catch {
            throw .invalidEncoding
        }
        let isStuck = step.consumedBytes == 0 && step.producedBytes == 0 && undecodedInputStart < bytes.count
        undecodedInputStart += step.consumedBytes
        consumedBytes += step.consumedBytes
        outerProducedBytes += step.producedBytes
        isOuterAtEnd = step.isAtEnd
        isOuterOutputFull = step.producedBytes == output.count
        try check(consumedBytes, outerProducedBytes, isStuck: isStuck)
        return step.producedBytes
    }

    private mutating func decodeInnerStep(into output: inout [UInt8]) throws(Fault) -> Int {
        var bytes: [UInt8] = []
        swap(&bytes, &intermediateBytes)
        defer { swap(&bytes, &intermediateBytes) }
        let step: Decompressor.Step?
        do throws(DecompressionError) {
            step = try innerDecompressor?.step(bytes.span.extracting(unreadIntermediateRange), into: &output)
        } catch {
            throw .invalidEncoding
        }
        guard let step else { preconditionFailure("a second step with a single coding") }
        let isStuck = step.consumedBytes == 0 && step.producedBytes == 0 && !unreadIntermediateRange.isEmpty
        unreadIntermediateRange = unreadIntermediateRange.dropFirst(step.consumedBytes)
        innerConsumedBytes += step.consumedBytes
        innerProducedBytes += step.producedBytes
        isInnerAtEnd = step.isAtEnd
        isInnerOutputFull = step.producedBytes == output.count
        try check(innerConsumedBytes, innerProducedBytes, isStuck: isStuck)
        return step.producedBytes
    }

    private func check(_ consumed: Int, _ produced: Int, isStuck: Bool) throws(Fault) {
        guard !isStuck else { throw .invalidEncoding }
        guard
            consumed <= Limits.maximumBytesDecodedToNothing
                || consumed / Limits.maximumCodedBytesPerDecodedByte <= produced
        else {
            throw exceedsDecodingRatio ? .decodingRatioExceeded : .emptyOutput
        }
        guard produced <= Limits.uncheckedDecodedBytes || !exceedsDecodingRatio else { throw .decodingRatioExceeded }
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
