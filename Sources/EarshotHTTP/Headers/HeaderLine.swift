internal import EarshotWire

/// Position of a line in a block of header fields, and of its name and value.
struct HeaderLine {
    /// Line without its LF.
    private(set) var line: Range<Int>
    private(set) var name: Range<Int>
    /// Value without leading and trailing blanks.
    private(set) var value: Range<Int>

    /// Returns the first well-formed line at or after `start`; nil without one. Skips lines without a colon or with a
    /// name that is not a token.
    static func next(_ bytes: Span<UInt8>, from start: Int) -> HeaderLine? {
        var start = start
        while start < bytes.count {
            let end = lineEnd(bytes, from: start)
            if let line = try? HeaderLine(bytes, start..<end, number: 0) { return line }
            start = end + 1
        }
        return nil
    }

    /// Returns the index of the LF, or the end of `bytes`, that terminates the line at `start`.
    static func lineEnd(_ bytes: Span<UInt8>, from start: Int) -> Int {
        let rest = bytes.extracting(start...)
        for index in rest.indices where rest[index] == UInt8(ascii: "\n") { return start + index }
        return bytes.count
    }

    /// Parses a line.
    ///
    /// - Parameter number: Line number for errors, from 1.
    init(_ bytes: Span<UInt8>, _ line: Range<Int>, number: Int) throws(HeaderFieldError) {
        var colon = line.lowerBound
        while colon < line.upperBound, bytes[colon].isToken { colon += 1 }
        guard colon > line.lowerBound, colon < line.upperBound, bytes[colon] == UInt8(ascii: ":") else {
            throw HeaderFieldError(code: .invalidName, line: number)
        }
        var start = colon + 1
        var end = line.upperBound
        while start < end, bytes[start].isBlank { start += 1 }
        while end > start, bytes[end - 1].isBlank { end -= 1 }
        self.line = line
        name = line.lowerBound..<colon
        value = start..<end
    }

    /// Returns the position of the same line in a block where it begins `offset` bytes later.
    func moved(by offset: Int) -> HeaderLine {
        var moved = self
        moved.line = line.lowerBound + offset..<line.upperBound + offset
        moved.name = name.lowerBound + offset..<name.upperBound + offset
        moved.value = value.lowerBound + offset..<value.upperBound + offset
        return moved
    }
}
