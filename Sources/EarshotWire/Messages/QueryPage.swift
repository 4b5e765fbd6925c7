/// The requested part of a table. Ignored by queries without a table.
public struct QueryPage: Equatable, Sendable {
    /// Start of the part: the `NAME-next` of the preceding reply; nil for the beginning.
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
                    throw WireError(.badMessage, "after must be the NAME-next of an earlier answer")
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
