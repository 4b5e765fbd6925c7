/// Legible parts of a broker message that violates the grammar.
public struct BrokerFragment: Equatable, Sendable {
    /// First word; empty if there is none.
    public let verb: String
    /// First operand, if it is a handler.
    public let handler: HandlerID?
    /// Second operand, if it is a request ID.
    public let request: RequestID?
    /// Value of `seq`; nil if it is absent or illegible.
    public let sequence: UInt64?
    /// Number of the message that it answers; nil if it is absent or illegible.
    public let to: UInt64?

    /// Reads a head of any form.
    public init(head: [UInt8]) {
        let lines = head.prefix(WireLimits.headBytes).split(separator: Ascii.lineFeed, omittingEmptySubsequences: false)
        let words = lines.first?.split(separator: Ascii.space, maxSplits: 3) ?? []
        verb = words.first.map { String(decoding: $0, as: UTF8.self) } ?? ""
        to = HeadNumber.value(of: "to", in: head)
        handler = words.count > 1 ? HandlerID(words[1]) : nil
        request = words.count > 2 ? RequestID(words[2]) : nil
        // The last of several values counts. HTTP fields follow an empty line.
        let field = lines.dropFirst().prefix { !$0.isEmpty }.last { $0.starts(with: "seq:".utf8) }
        let values = field?.dropFirst(4).split(separator: Ascii.space) ?? []
        sequence = values.count == 1 ? Decimal.unsigned(values[0]) : nil
    }
}
