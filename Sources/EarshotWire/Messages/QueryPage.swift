/// Part of a table that a QUERY asks for; of the questions without a table it means nothing.
public struct QueryPage: Equatable, Sendable {
    /// Where it begins: what the answer before told as `NAME-next`; nil for the beginning.
    public var after: String?
    /// Maximum number of entries, 1 to `WireLimits.queryEntries`; nil for that many.
    public var limit: Int?

    public init(after: String? = nil, limit: Int? = nil) {
        self.after = after
        self.limit = limit
    }

    init(_ reader: HeadReader) throws(WireError) {
        for (name, value) in reader.fields {
            switch name {
            case "after":
                guard (1...WireLimits.handlerBytes).contains(value.bytes.count),
                    value.bytes.allSatisfy({ (0x21...0x7e).contains($0) })
                else {
                    throw WireError(.badMessage, "after is what an answer told as next")
                }
                after = value.string
            case "limit": limit = try HeadReader.integer(value, in: 1...WireLimits.queryEntries, "limit")
            default: break
            }
        }
    }

    func write(to writer: inout HeadWriter) {
        writer.field("after", after)
        writer.field("limit", limit.map { String($0) })
    }
}
