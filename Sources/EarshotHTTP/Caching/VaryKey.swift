/// The request fields by which a server chose an answer, in one form for all spellings that mean the same: RFC 9111,
/// section 4.1. Answers for one `CacheKey` with different keys are variants.
public struct VaryKey: Hashable, Sendable {
    /// A line for each field that `Vary` names, sorted by name: `name:value`, or `name` where the request has none.
    ///
    /// It may hold credentials: not for logs, and for a disk only as a digest of it.
    public let canonical: [UInt8]

    /// A key that was kept. One that no `init(response:request:)` made matches no request.
    public init(canonical: [UInt8]) {
        self.canonical = canonical
    }

    /// The key of an answer with these fields to a request with those; nil if no request is known to have the same
    /// answer: `Vary` has a `*`, something that is no field name, or more than `HTTPLimits.varyNames` names.
    public init?(response: HeaderFields, request: HeaderFields) {
        var names: Set<[UInt8]> = []
        for member in FieldList.members(response.values(bytes: "vary")) {
            guard member.allSatisfy(\.isToken), !member.elementsEqual("*".utf8) else { return nil }
            names.insert(member.map(\.lowercased))
            guard names.count <= HTTPLimits.varyNames else { return nil }
        }
        var canonical: [UInt8] = []
        for name in names.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            canonical += name
            let text = String(decoding: name, as: UTF8.self)
            let lines = request.values(bytes: text)
            if !lines.isEmpty {
                canonical.append(UInt8(ascii: ":"))
                canonical += Self.normalized(lines, of: text)
            }
            canonical.append(UInt8(ascii: "\n"))
        }
        self.canonical = canonical
    }

    /// The lines of one field as one value. Blanks and case are given up only where they are known to mean nothing.
    private static func normalized(_ lines: [ArraySlice<UInt8>], of name: String) -> [UInt8] {
        switch name {
        case "accept": list(lines)
        case "accept-charset", "accept-encoding", "accept-language": list(lines).map(\.lowercased)
        default: Array(lines.joined(separator: ", ".utf8))
        }
    }

    /// Members and their parameters without blanks in between.
    private static func list(_ lines: [ArraySlice<UInt8>]) -> [UInt8] {
        let members = FieldList.members(lines).map { member in
            Array(FieldList.split(member, at: UInt8(ascii: ";")).joined(separator: ";".utf8))
        }
        return Array(members.joined(separator: ",".utf8))
    }
}
