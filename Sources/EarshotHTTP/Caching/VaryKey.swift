internal import EarshotWire

/// Request fields that selected a response, normalized: RFC 9111, section 4.1. Stored responses of one `CacheKey` with
/// different keys are variants.
public struct VaryKey: Hashable, Sendable {
    /// One line per field named by `Vary`, sorted by name: `name:value`, or `name` if the request lacks the field.
    ///
    /// It may contain credentials: never log it, and write only a digest of it to disk.
    public let canonical: [UInt8]

    /// Key of a response without `Vary`.
    static let empty = VaryKey(canonical: [])

    /// Restores a stored key. A value not created by `init(response:request:)` matches no request.
    public init(canonical: [UInt8]) {
        self.canonical = canonical
    }

    /// Creates the key of a response to a request. Nil if no other request is known to have the same response: `Vary`
    /// contains `*`, an invalid field name, or more than `HTTPLimits.varyNames` names.
    public init?(response: HeaderFields, request: HeaderFields) {
        self.init(values: response.values(bytes: "vary"), request: request)
    }

    /// Implements `init(response:request:)` for the values of the fields `Vary`.
    init?(values: [ArraySlice<UInt8>], request: HeaderFields) {
        guard !values.isEmpty else {
            canonical = []
            return
        }
        var names: Set<[UInt8]> = []
        for member in FieldList.members(values) {
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

    /// Joins the lines of one field. Blanks and case are normalized only where they are insignificant.
    private static func normalized(_ lines: [ArraySlice<UInt8>], of name: String) -> [UInt8] {
        switch name {
        case "accept": list(lines)
        case "accept-charset", "accept-encoding", "accept-language": list(lines).map(\.lowercased)
        default: Array(lines.joined(separator: ", ".utf8))
        }
    }

    /// Returns list members and their parameters without blanks in between.
    private static func list(_ lines: [ArraySlice<UInt8>]) -> [UInt8] {
        let members = FieldList.members(lines).map { member in
            Array(FieldList.split(member, at: UInt8(ascii: ";")).joined(separator: ";".utf8))
        }
        return Array(members.joined(separator: ",".utf8))
    }
}
