internal import EarshotWire

/// Key of a stored response: RFC 9111, section 2, extended by the trust scope.
///
/// The method is not part of it: only responses to GET are stored, and they also answer HEAD. `VaryKey` distinguishes
/// the variants of one key.
public struct CacheKey: Hashable, Sendable {
    /// URL without fragment and user information. The user information is part of the scope.
    public let url: FetchURL
    /// Trust scope of the response. A request of another scope never uses it.
    public let trustScope: TrustScope
    /// Additional key chosen by the client that separates otherwise equal requests; usually empty. A body that is not
    /// decoded has an addition that no client can choose.
    public let partition: String

    /// Returns the key of a request.
    ///
    /// - Parameters:
    ///   - partition: Separates otherwise equal requests.
    ///   - credentials: Rule by which requests share flights. Requests that share a flight share stored responses.
    public init(_ request: HTTPRequest, partition: String = "", credentials: CredentialRule = .standard) {
        self.partition = request.route.decodesBody ? partition : partition + "\tundecoded"
        url = Self.keyURL(for: request.url)
        trustScope = credentials.trustScope(of: request)
    }

    /// Returns `url` in the form used in keys.
    static func keyURL(for url: FetchURL) -> FetchURL {
        // Cannot fail: the result is shorter than an accepted URL and consists of its parts.
        (try? url.withUserinfo(of: nil)) ?? url
    }
}

/// Request fields that selected a response, normalized: RFC 9111, section 4.1. Stored responses of one `CacheKey` with
/// different keys are variants.
public struct VaryKey: Hashable, Sendable {
    /// One line per field named by `Vary`, sorted by name: `name:value`, or `name` if the request lacks the field.
    ///
    /// It may contain credentials: never log it, and write only a digest of it to disk.
    public let canonicalFields: [UInt8]

    /// Key of a response without `Vary`.
    static let empty = VaryKey(canonicalFields: [])

    /// Restores a stored key. A value not created by `init(response:request:)` matches no request.
    public init(canonicalFields: [UInt8]) {
        self.canonicalFields = canonicalFields
    }

    /// Creates the key of a response to a request. Nil if no other request is known to have the same response: `Vary`
    /// contains `*`, an invalid field name, or more than `HTTPLimits.varyNames` names.
    public init?(response: HeaderFields, request: HeaderFields) {
        self.init(varyValues: response.valueBytes(named: "vary"), request: request)
    }

    /// Implements `init(response:request:)` for the values of the fields `Vary`.
    init?(varyValues: [ArraySlice<UInt8>], request: HeaderFields) {
        guard !varyValues.isEmpty else {
            canonicalFields = []
            return
        }
        var names: Set<[UInt8]> = []
        for member in FieldList.members(varyValues) {
            guard member.allSatisfy(\.isTokenByte), !member.elementsEqual("*".utf8) else { return nil }
            names.insert(member.map(\.lowercased))
            guard names.count <= HTTPLimits.varyNames else { return nil }
        }
        var canonical: [UInt8] = []
        for name in names.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            canonical += name
            let text = String(decoding: name, as: UTF8.self)
            let lines = request.valueBytes(named: text)
            if !lines.isEmpty {
                canonical.append(UInt8(ascii: ":"))
                canonical += Self.normalizedValue(lines, ofField: text)
            }
            canonical.append(UInt8(ascii: "\n"))
        }
        self.canonicalFields = canonical
    }

    /// Joins the lines of one field. Blanks and case are normalized only where they are insignificant.
    private static func normalizedValue(_ lines: [ArraySlice<UInt8>], ofField name: String) -> [UInt8] {
        switch name {
        case "accept": normalizedList(lines)
        case "accept-charset", "accept-encoding", "accept-language": normalizedList(lines).map(\.lowercased)
        default: Array(lines.joined(separator: ", ".utf8))
        }
    }

    /// Returns list members and their parameters without blanks in between.
    private static func normalizedList(_ lines: [ArraySlice<UInt8>]) -> [UInt8] {
        let members = FieldList.members(lines).map { member in
            Array(FieldList.split(member, at: UInt8(ascii: ";")).joined(separator: ";".utf8))
        }
        return Array(members.joined(separator: ",".utf8))
    }
}
