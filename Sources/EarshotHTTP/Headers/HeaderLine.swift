internal import EarshotWire

/// Position of a line in a block of header fields, and of its name and value.
struct HeaderLine {
    /// Line without its LF.
    private(set) var lineRange: Range<Int>
    private(set) var nameRange: Range<Int>
    /// Value without leading and trailing blanks.
    private(set) var valueRange: Range<Int>

    /// Returns the first well-formed line at or after `start`; nil without one. Skips lines without a colon or with a
    /// name that is not a token.
    static func firstWellFormed(in bytes: Span<UInt8>, from start: Int) -> HeaderLine? {
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
        while colon < line.upperBound, bytes[colon].isTokenByte { colon += 1 }
        guard colon > line.lowerBound, colon < line.upperBound, bytes[colon] == UInt8(ascii: ":") else {
            throw HeaderFieldError(code: .invalidName, line: number)
        }
        var start = colon + 1
        var end = line.upperBound
        while start < end, bytes[start].isBlank { start += 1 }
        while end > start, bytes[end - 1].isBlank { end -= 1 }
        self.lineRange = line
        nameRange = line.lowerBound..<colon
        valueRange = start..<end
    }

    /// Returns the position of the same line in a block where it begins `offset` bytes later.
    func moved(by offset: Int) -> HeaderLine {
        var moved = self
        moved.lineRange = lineRange.lowerBound + offset..<lineRange.upperBound + offset
        moved.nameRange = nameRange.lowerBound + offset..<nameRange.upperBound + offset
        moved.valueRange = valueRange.lowerBound + offset..<valueRange.upperBound + offset
        return moved
    }
}

/// Error in the header fields of a request, for which the broker refuses it.
public struct HeaderFieldError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kinds of errors.
    public enum Code: Hashable, Sendable, CaseIterable {
        /// No colon, or no token before it: RFC 9110, section 5.6.2.
        case invalidName
        /// A control character other than a tab in the value: RFC 9110, section 5.5.
        case invalidValue
        /// Field for framing, connection or host, which libcurl sets.
        case reservedName
        /// More than `HTTPLimits.headerFields` fields.
        case tooManyFields
        /// More than `HTTPLimits.headerBytes` bytes.
        case tooLarge
    }

    public let code: Code

    /// Number of the faulty line, from 1.
    public let line: Int

    /// Name of a reserved field, in lower case; nil for other errors.
    public var name: String?

    /// Message for the user. It contains no part of the fields but a reserved name.
    public var description: String {
        switch code {
        case .invalidName: "Header line \(line) does not begin with a valid field name and a colon."
        case .invalidValue: "Header line \(line) holds a control character."
        case .reservedName:
            "The request may not set the field \(name ?? "") (header line \(line)): \(reservedNameReason); omit it."
        case .tooManyFields: "There are more than \(HTTPLimits.headerFields) header fields."
        case .tooLarge: "The header fields are longer than \(HTTPLimits.headerBytes) bytes."
        }
    }

    /// Reason why a field is reserved.
    private var reservedNameReason: String {
        switch name {
        case "host": "it follows from the URL"
        case "content-length": "it follows from the body"
        case "expect": "the bus does not wait for a server's consent to a body"
        default: "it belongs to the connection, which other requests may share"
        }
    }
}
