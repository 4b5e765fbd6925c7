public import EarshotHTTP
public import EarshotWire

/// Request as other nodes learn it: the record of a shared flight in the engine.
///
/// ```
/// 1 GET 30000 0 follow default https://example.com/a
/// :policy public-only, deny *.example.org
/// :avoid 10.0.0.3:5767
/// accept: text/html
/// ```
///
/// The first line has the form (1, or 2 for a body that is not decoded), method, timeout in milliseconds, maximum size
/// of the body (0 for none), redirect mode, cache mode and URL. `:policy` is the address policy of the node that wants
/// it, and `:avoid` has the addresses of nodes whose bodies it cannot read; both lines may be absent. The other lines
/// are the header fields of the request. Nothing else reaches the engine. A request that needs more stays on its node.
public struct SharedRequest: Equatable, Sendable {
    public let method: HTTPMethod
    public let url: FetchURL
    public let headerFields: HeaderFields
    /// Time limit of the attempt; 0 for the default of the node that fetches.
    public let timeoutMilliseconds: Int
    /// Maximum size of the decoded body in bytes; nil for none.
    public let maximumBodyBytes: Int?
    public let redirectMode: RedirectMode
    public let cacheMode: CacheMode
    /// Whether the worker decodes the body.
    public let decodesBody: Bool
    /// Rules for `AddressPolicy`, on one line; empty for no restriction.
    public let addressPolicy: String
    /// Addresses of nodes whose bodies cannot be read where the request is wanted.
    public let avoidedAddresses: [String]

    /// Nil if the request must stay on its node: another method than GET and HEAD, another scheme than http and https,
    /// credentials, a field that may identify a user, a route or cookies of its own, results with an error status, or a
    /// record that is too long.
    public init?(
        _ request: HTTPRequest, timeoutMilliseconds: Int, maximumBodyBytes: Int? = nil,
        redirect: RedirectMode = .follow,
        mode: CacheMode = .default, credentials: CredentialRule = .standard, policy: String = "",
        avoided: [String] = []
    ) {
        guard request.method.canCoalesce, !request.route.deliversErrorResponses, credentials.isAnonymous(request) else {
            return nil
        }
        method = request.method
        url = request.url
        headerFields = request.fields
        self.timeoutMilliseconds = timeoutMilliseconds
        self.maximumBodyBytes = maximumBodyBytes
        self.redirectMode = redirect
        self.cacheMode = mode
        decodesBody = request.route.decodesBody
        self.addressPolicy = policy
        self.avoidedAddresses = avoided
        guard encodedRecord.count <= EngineLimits.maximumRecordBytes else { return nil }
    }

    /// Parses a record. Nil for any other bytes, and for a request that must not be shared.
    public init?(record: [UInt8]) {
        guard record.count <= EngineLimits.maximumRecordBytes else { return nil }
        let end = record.firstIndex(of: UInt8(ascii: "\n")) ?? record.endIndex
        guard let line = String(validating: record[..<end], as: UTF8.self) else { return nil }
        let words = line.split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 7, words[0] == "1" || words[0] == "2", let method = HTTPMethod(String(words[1])),
            let timeout = Int(words[2]), (0...Int(UInt32.max)).contains(timeout),
            let maximumBodyBytes = Int(words[3]), maximumBodyBytes >= 0,
            let redirect = RedirectMode(rawValue: String(words[4])),
            let mode = CacheMode(rawValue: String(words[5])), let url = try? FetchURL(String(words[6]))
        else { return nil }
        var lines = record[end...].dropFirst()
        let policy = Self.takeLine(prefix: Self.policyLinePrefix, from: &lines)
        let avoided = Self.takeLine(prefix: Self.avoidedAddressesPrefix, from: &lines)
        var fields = HeaderFields()
        for field in HeaderFields(lines: Array(lines)) {
            let value = String(decoding: field.value, as: UTF8.self)
            guard (try? fields.append(String(decoding: field.name, as: UTF8.self), value)) != nil else { return nil }
        }
        var route = Route()
        route.decodesBody = words[0] == "1"
        self.init(
            HTTPRequest(method: method, url: url, fields: fields, route: route), timeoutMilliseconds: timeout,
            maximumBodyBytes: maximumBodyBytes == 0 ? nil : maximumBodyBytes, redirect: redirect, mode: mode,
            policy: policy,
            avoided: avoided.split(separator: ",").map(String.init))
    }

    /// Part of the flight's key: nodes with different policies share no flight. Empty without a policy.
    var addressPolicyLine: [UInt8] {
        addressPolicy.isEmpty ? [] : Array("\n\(Self.policyLinePrefix)\(addressPolicy)".utf8)
    }

    private static let policyLinePrefix = ":policy "
    private static let avoidedAddressesPrefix = ":avoid "

    /// Takes the first line if it begins with this text, which no header field does.
    ///
    /// - Returns: the rest of that line; empty without it.
    private static func takeLine(prefix start: String, from lines: inout ArraySlice<UInt8>) -> String {
        guard lines.starts(with: start.utf8) else { return "" }
        let line = lines.prefix { $0 != UInt8(ascii: "\n") }
        lines = lines[line.endIndex...].dropFirst()
        return String(decoding: line.dropFirst(start.utf8.count), as: UTF8.self)
    }

    public var httpRequest: HTTPRequest {
        var route = Route()
        route.decodesBody = decodesBody
        return HTTPRequest(method: method, url: url, fields: headerFields, route: route)
    }

    /// Bytes for the engine.
    public var encodedRecord: [UInt8] {
        let limits = "\(timeoutMilliseconds) \(maximumBodyBytes ?? 0)"
        var bytes = Array(
            "\(decodesBody ? 1 : 2) \(method) \(limits) \(redirectMode.rawValue) \(cacheMode.rawValue) \(url)".utf8)
        bytes += addressPolicyLine
        if !avoidedAddresses.isEmpty {
            bytes += "\n\(Self.avoidedAddressesPrefix)\(avoidedAddresses.joined(separator: ","))".utf8
        }
        if !headerFields.isEmpty {
            bytes.append(UInt8(ascii: "\n"))
            bytes += headerFields.bytes
        }
        return bytes
    }
}
