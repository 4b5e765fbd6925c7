/// Command to a server: its name and arguments, any bytes.
public struct Command: Hashable, Sendable {
    /// Name and arguments, one after the other.
    private var wordBytes: [UInt8] = []
    /// Length of each.
    private var wordLengths: [Int] = []

    /// - Parameter words: Name of the command, and arguments.
    public init(_ words: String...) {
        for word in words { append(word) }
    }

    /// Appends an argument as UTF-8.
    public mutating func append(_ argument: String) {
        let start = wordBytes.count
        wordBytes.append(contentsOf: argument.utf8)
        wordLengths.append(wordBytes.count - start)
    }

    /// Appends an argument of any bytes.
    public mutating func append(_ argument: [UInt8]) {
        wordBytes += argument
        wordLengths.append(argument.count)
    }

    /// Appends the words of another command.
    public mutating func append(_ command: Command) {
        wordBytes += command.wordBytes
        wordLengths += command.wordLengths
    }

    /// Number of words: the name, and each argument.
    public var wordCount: Int { wordLengths.count }

    /// Name and arguments as text, for tests and messages without secrets.
    public var words: [String] {
        var start = 0
        return wordLengths.map { length in
            defer { start += length }
            return String(decoding: wordBytes[start..<start + length], as: UTF8.self)
        }
    }

    /// Appends the command in the form of the protocol: an array of bulk strings.
    public func encode(into output: inout [UInt8]) {
        output += "*\(wordLengths.count)\r\n".utf8
        var start = 0
        for length in wordLengths {
            output += "$\(length)\r\n".utf8
            output += wordBytes[start..<start + length]
            output += "\r\n".utf8
            start += length
        }
    }
}
