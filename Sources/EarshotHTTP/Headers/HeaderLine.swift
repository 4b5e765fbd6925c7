/// Where one line of a block of header fields is, and its name and value in it.
struct HeaderLine {
    /// The line without its LF.
    let line: Range<Int>
    let name: Range<Int>
    /// The value without the blanks around it.
    let value: Range<Int>

    /// Finds the first well-formed line that begins at `start` or later; nil if none does. A line without a colon or
    /// with another name than a token is passed over.
    static func next(_ bytes: Span<UInt8>, from start: Int) -> HeaderLine? {
        var start = start
        while start < bytes.count {
            let end = lineEnd(bytes, from: start)
            if let line = try? HeaderLine(bytes, start..<end, number: 0) { return line }
            start = end + 1
        }
        return nil
    }

    /// The LF, or the end of `bytes`, that ends the line that begins at `start`.
    static func lineEnd(_ bytes: Span<UInt8>, from start: Int) -> Int {
        let rest = bytes.extracting(start...)
        for index in rest.indices where rest[index] == UInt8(ascii: "\n") { return start + index }
        return bytes.count
    }

    /// Takes a line apart.
    ///
    /// - Parameter number: The number of the line for an error to name, from 1.
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
}
