internal import EarshotWire

/// Reader of a body in the transfer coding `chunked`: RFC 9112, section 7.1. Extensions and trailers are dropped.
package struct ChunkedBody {
    package enum Reading: Equatable {
        case incomplete
        case complete
        case rejected(status: Int)
    }

    private enum Phase {
        case chunkSize
        case chunkData(Int)
        case endOfData
        case trailers
    }

    /// Maximum length of a line with a size, and number of bytes of all of them, in proportion to the body: extensions
    /// are bytes without a use that this process reads.
    private static let lineBytes = 256
    private static let (overheadBytes, overheadShare) = (16_384, 16)
    private static let trailerBytes = 8_192

    /// The data so far.
    package private(set) var decodedBytes: [UInt8] = []
    private let maximumBytes: Int
    private var phase = Phase.chunkSize
    private var overheadByteCount = 0
    private var trailerByteCount = 0

    /// - Parameter maximumBytes: maximum size of the data.
    package init(maximumBytes: Int) {
        self.maximumBytes = maximumBytes
    }

    /// Reads the next part of the body, and removes it from `input`.
    package mutating func read(_ input: inout [UInt8]) -> Reading {
        var rest = input[...]
        let reading = parseNext(&rest)
        input = Array(rest)
        return reading
    }

    private mutating func parseNext(_ input: inout ArraySlice<UInt8>) -> Reading {
        while true {
            switch phase {
            case .chunkData(let count):
                guard !input.isEmpty else { return .incomplete }
                let part = input.prefix(count)
                decodedBytes += part
                input = input.dropFirst(part.count)
                phase = part.count == count ? .endOfData : .chunkData(count - part.count)
            case .endOfData:
                guard [13, 10].starts(with: input.prefix(2)) else { return .rejected(status: 400) }
                guard input.count >= 2 else { return .incomplete }
                input = input.dropFirst(2)
                phase = .chunkSize
            case .chunkSize, .trailers:
                switch takeLine(from: &input) {
                case .incompleteLine: return .incomplete
                case .malformedLine: return .rejected(status: 400)
                case .completeLine(let line): if let end = handleLine(line) { return end }
                }
            }
        }
    }

    private enum Line {
        case incompleteLine
        case malformedLine
        case completeLine(ArraySlice<UInt8>)
    }

    /// Takes a line that ends in CRLF.
    private func takeLine(from input: inout ArraySlice<UInt8>) -> Line {
        var maximumLength = Self.lineBytes
        if case .trailers = phase { maximumLength = Self.trailerBytes }
        guard let end = input.firstIndex(where: { $0 == 13 || $0 == 10 }) else {
            return input.count > maximumLength ? .malformedLine : .incompleteLine
        }
        guard end - input.startIndex <= maximumLength, input[end] == 13 else { return .malformedLine }
        guard end + 1 < input.endIndex else { return .incompleteLine }
        guard input[end + 1] == 10 else { return .malformedLine }
        defer { input = input[(end + 2)...] }
        return .completeLine(input[..<end])
    }

    /// Handles a line with a size or a trailer. Returns the end of the body; nil if it goes on.
    private mutating func handleLine(_ line: ArraySlice<UInt8>) -> Reading? {
        if case .trailers = phase {
            guard !line.isEmpty else { return .complete }
            trailerByteCount += line.count
            let name = line.prefix { $0 != UInt8(ascii: ":") }
            let isField = !name.isEmpty && name.count < line.count && name.allSatisfy(\.isTokenByte)
            return isField && trailerByteCount <= Self.trailerBytes ? nil : .rejected(status: 400)
        }
        let digits = line.prefix { $0.hexValue != nil }
        let rest = line[digits.endIndex...].drop(while: \.isBlank)
        guard (1...15).contains(digits.count), rest.isEmpty || rest.first == UInt8(ascii: ";"),
            rest.allSatisfy({ !$0.isControl || $0.isBlank }),
            let size = Int(String(decoding: digits, as: UTF8.self), radix: 16)
        else { return .rejected(status: 400) }
        overheadByteCount += line.count
        guard overheadByteCount <= Self.overheadBytes + decodedBytes.count * Self.overheadShare else {
            return .rejected(status: 400)
        }
        guard size <= maximumBytes - decodedBytes.count else { return .rejected(status: 413) }
        phase = size == 0 ? .trailers : .chunkData(size)
        return nil
    }
}
