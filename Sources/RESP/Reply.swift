/// Reply of a server, in version 2 of its protocol (RESP2).
public indirect enum Reply: Hashable, Sendable {
    /// Status such as `OK`.
    case status(String)
    /// Error text, which starts with a word in capital letters.
    case error(String)
    case integer(Int)
    case bulkString([UInt8])
    case array([Reply])
    case null

    /// Text of a status or of bytes; nil for other replies.
    public var text: String? {
        switch self {
        case .status(let text): text
        case .bulkString(let bytes): String(decoding: bytes, as: UTF8.self)
        case .error, .integer, .array, .null: nil
        }
    }
}

/// Incremental parser of a server's replies, in version 2 of the protocol (RESP2). It never traps on any input.
public struct ReplyReader: Sendable {
    /// Bytes that are no reply, or a reply beyond a bound.
    public struct MalformedReply: Error, Hashable, Sendable {}

    /// Array that lacks elements.
    private struct OpenArray {
        let expectedCount: Int
        var elements: [Reply] = []
    }

    /// Maximum number of elements of an array: a batch of calls has fewer.
    private static let maximumElements = 4_096
    /// Maximum number of arrays in each other. Replies of the engine have three.
    private static let maximumDepth = 8

    /// Maximum number of bytes of one reply.
    private let maximumBytes: Int
    /// Received bytes; those before `position` are parsed.
    private var receivedBytes: [UInt8] = []
    private var position = 0
    /// Bytes that have no end of a line.
    private var bytesWithoutLineEnd = 0
    /// Number of parsed bytes of the incomplete reply.
    private var parsedReplyBytes = 0
    /// Incomplete arrays, the outermost first.
    private var openArrays: [OpenArray] = []
    private var hasFailed = false

    /// - Parameter maximumReplyBytes: Bound of one reply; a larger one is an error.
    public init(maximumReplyBytes: Int) {
        maximumBytes = maximumReplyBytes
    }

    /// Parses further bytes and appends the complete replies.
    ///
    /// - Throws: `MalformedReply` also for too large replies; all further calls then fail.
    public mutating func feed(_ input: ArraySlice<UInt8>, into replies: inout [Reply]) throws(MalformedReply) {
        guard !hasFailed else { throw MalformedReply() }
        // Reset below, unless an error ends the function.
        hasFailed = true
        receivedBytes += input
        while let element = try nextElement() {
            if let reply = addElement(element) {
                replies.append(reply)
                parsedReplyBytes = 0
            }
        }
        guard parsedReplyBytes + receivedBytes.count - position <= maximumBytes else { throw MalformedReply() }
        receivedBytes.removeFirst(position)
        bytesWithoutLineEnd -= position
        position = 0
        hasFailed = false
    }

    /// Adds an element to the innermost array. Returns the reply that it completes; nil if an array lacks elements.
    private mutating func addElement(_ element: Reply?) -> Reply? {
        guard var value = element else { return nil }
        while var array = openArrays.popLast() {
            array.elements.append(value)
            guard array.elements.count == array.expectedCount else {
                openArrays.append(array)
                return nil
            }
            value = .array(array.elements)
        }
        return value
    }

    /// Parses one element. Returns nil if its bytes are incomplete, and `.some(nil)` for an array whose elements
    /// follow.
    private mutating func nextElement() throws(MalformedReply) -> Reply?? {
        guard position < receivedBytes.count else { return .none }
        let type = receivedBytes[position]
        guard "+-:$*".utf8.contains(type) else { throw MalformedReply() }
        guard let end = receivedBytes[max(position, bytesWithoutLineEnd)...].firstIndex(of: UInt8(ascii: "\n")) else {
            bytesWithoutLineEnd = receivedBytes.count
            return .none
        }
        guard receivedBytes[end - 1] == UInt8(ascii: "\r"), end - 1 > position else { throw MalformedReply() }
        let line = receivedBytes[position + 1..<end - 1]
        var next = end + 1
        var element: Reply?
        switch type {
        case UInt8(ascii: "+"): element = .status(String(decoding: line, as: UTF8.self))
        case UInt8(ascii: "-"): element = .error(String(decoding: line, as: UTF8.self))
        case UInt8(ascii: ":"): element = .integer(try Self.parseNumber(line, in: .min ... .max))
        case UInt8(ascii: "$"):
            let count = try Self.parseNumber(line, in: -1...maximumBytes)
            if count >= 0 {
                guard receivedBytes.count - next >= count + 2 else { return .none }
                guard receivedBytes[next + count] == UInt8(ascii: "\r"),
                    receivedBytes[next + count + 1] == UInt8(ascii: "\n")
                else {
                    throw MalformedReply()
                }
                element = .bulkString(Array(receivedBytes[next..<next + count]))
                next += count + 2
            } else {
                element = .null
            }
        default:
            let count = try Self.parseNumber(line, in: -1...Self.maximumElements)
            guard openArrays.count < Self.maximumDepth else { throw MalformedReply() }
            if count > 0 {
                openArrays.append(OpenArray(expectedCount: count))
            } else {
                element = count == 0 ? .array([]) : .null
            }
        }
        parsedReplyBytes += next - position
        position = next
        return .some(element)
    }

    /// Parses a decimal number without a plus sign.
    private static func parseNumber(
        _ text: ArraySlice<UInt8>, in range: ClosedRange<Int>
    ) throws(MalformedReply) -> Int {
        guard text.first != UInt8(ascii: "+"), let number = Int(String(decoding: text, as: UTF8.self)),
            range.contains(number)
        else { throw MalformedReply() }
        return number
    }
}
