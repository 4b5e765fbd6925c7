/// Command to a server: its name and arguments, any bytes.
public struct Command: Hashable, Sendable {
    /// Name and arguments, one after the other.
    private var bytes: [UInt8] = []
    /// Length of each.
    private var lengths: [Int] = []

    /// - Parameter words: Name of the command, and arguments.
    public init(_ words: String...) {
        for word in words { append(word) }
    }

    /// Appends an argument as UTF-8.
    public mutating func append(_ argument: String) {
        let start = bytes.count
        bytes.append(contentsOf: argument.utf8)
        lengths.append(bytes.count - start)
    }

    /// Appends an argument of any bytes.
    public mutating func append(_ argument: [UInt8]) {
        bytes += argument
        lengths.append(argument.count)
    }

    /// Appends the words of another command.
    public mutating func append(_ command: Command) {
        bytes += command.bytes
        lengths += command.lengths
    }

    /// Number of words: the name, and each argument.
    public var wordCount: Int { lengths.count }

    /// Name and arguments as text, for tests and messages without secrets.
    public var words: [String] {
        var start = 0
        return lengths.map { length in
            defer { start += length }
            return String(decoding: bytes[start..<start + length], as: UTF8.self)
        }
    }

    /// Appends the command in the form of the protocol: an array of bulk strings.
    public func encode(into output: inout [UInt8]) {
        output += "*\(lengths.count)\r\n".utf8
        var start = 0
        for length in lengths {
            output += "$\(length)\r\n".utf8
            output += bytes[start..<start + length]
            output += "\r\n".utf8
            start += length
        }
    }
}
