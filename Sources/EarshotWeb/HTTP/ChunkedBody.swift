internal import EarshotWire

/// Reader of a body in the transfer coding `chunked`: RFC 9112, section 7.1. Extensions and trailers are dropped.
package struct ChunkedBody {
    package enum Reading: Equatable {
        case incomplete
        case complete
        case rejected(status: Int)
    }

    private enum Phase {
        case size
        case data(Int)
        case endOfData
        case trailers
    }

    /// Maximum length of a line with a size, and number of bytes of all of them, in proportion to the body: extensions are
    /// bytes without a use that this process reads.
    private static let lineBytes = 256
    private static let (overheadBytes, overheadShare) = (16_384, 16)
    private static let trailerBytes = 8_192

    /// The data so far.
    package private(set) var bytes: [UInt8] = []
    private let limit: Int
    private var phase = Phase.size
    private var overhead = 0
    private var trailers = 0

    /// - Parameter limit: maximum size of the data.
    package init(limit: Int) {
        self.limit = limit
    }

    /// Reads the next part of the body, and removes it from `input`.
    package mutating func read(_ input: inout [UInt8]) -> Reading {
        var rest = input[...]
        let reading = step(&rest)
        input = Array(rest)
        return reading
    }

    private mutating func step(_ input: inout ArraySlice<UInt8>) -> Reading {
        while true {
            switch phase {
            case .data(let count):
                guard !input.isEmpty else { return .incomplete }
                let part = input.prefix(count)
                bytes += part
                input = input.dropFirst(part.count)
                phase = part.count == count ? .endOfData : .data(count - part.count)
            case .endOfData:
                guard [13, 10].starts(with: input.prefix(2)) else { return .rejected(status: 400) }
                guard input.count >= 2 else { return .incomplete }
                input = input.dropFirst(2)
                phase = .size
            case .size, .trailers:
                switch line(&input) {
                case .missing: return .incomplete
                case .malformed: return .rejected(status: 400)
                case .line(let line): if let end = take(line) { return end }
                }
            }
        }
    }

    private enum Line {
        case missing
        case malformed
        case line(ArraySlice<UInt8>)
    }

    /// Takes a line that ends in CRLF.
    private func line(_ input: inout ArraySlice<UInt8>) -> Line {
        var most = Self.lineBytes
        if case .trailers = phase { most = Self.trailerBytes }
        guard let end = input.firstIndex(where: { $0 == 13 || $0 == 10 }) else {
            return input.count > most ? .malformed : .missing
        }
        guard end - input.startIndex <= most, input[end] == 13 else { return .malformed }
        guard end + 1 < input.endIndex else { return .missing }
        guard input[end + 1] == 10 else { return .malformed }
        defer { input = input[(end + 2)...] }
        return .line(input[..<end])
    }

    /// Handles a line with a size or a trailer. Returns the end of the body; nil if it goes on.
    private mutating func take(_ line: ArraySlice<UInt8>) -> Reading? {
        if case .trailers = phase {
            guard !line.isEmpty else { return .complete }
            trailers += line.count
            let name = line.prefix { $0 != UInt8(ascii: ":") }
            let isField = !name.isEmpty && name.count < line.count && name.allSatisfy(\.isToken)
            return isField && trailers <= Self.trailerBytes ? nil : .rejected(status: 400)
        }
        let digits = line.prefix { $0.hexValue != nil }
        let rest = line[digits.endIndex...].drop(while: \.isBlank)
        guard (1...15).contains(digits.count), rest.isEmpty || rest.first == UInt8(ascii: ";"),
            rest.allSatisfy({ !$0.isControl || $0.isBlank }),
            let size = Int(String(decoding: digits, as: UTF8.self), radix: 16)
        else { return .rejected(status: 400) }
        overhead += line.count
        guard overhead <= Self.overheadBytes + bytes.count * Self.overheadShare else { return .rejected(status: 400) }
        guard size <= limit - bytes.count else { return .rejected(status: 413) }
        phase = size == 0 ? .trailers : .data(size)
        return nil
    }
}
