public import EarshotWire

/// HTTP request of one hop of a flight: the input of the rules for the cache, credentials and redirects.
public struct HTTPRequest: Hashable, Sendable {
    public var url: FetchURL
    public var method: HTTPMethod
    public var fields: HeaderFields
    /// Route to the server.
    public var route: Route
    /// Root handler that owns the cookie jar; nil without cookies.
    public var cookieJarOwner: String?
}

extension HTTPRequest {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(
        method: HTTPMethod = .get, url: FetchURL, fields: HeaderFields = HeaderFields(), route: Route = Route(),
        cookieJarOwner: String? = nil
    ) {
        self.init(url: url, method: method, fields: fields, route: route, cookieJarOwner: cookieJarOwner)
    }
}

extension HTTPRequest {
    /// Returns the request with fields added by a rule: conditions, a range, cookies. They replace fields of the same
    /// name.
    public func addingFields(_ added: HeaderFields) -> HTTPRequest {
        guard !added.isEmpty else { return self }
        var request = self
        let names = Set(added.map { $0.name.map(\.lowercased) })
        request.fields.removeAll { names.contains($0.name.map(\.lowercased)) }
        for field in added { request.fields.appendUnchecked(field.name, field.value) }
        return request
    }
}

/// Fields in which requests that share a fetch may differ, if the worker decodes nothing. Only the response shows
/// whether it suits each of them.
extension HTTPRequest {
    /// Returns the fields that requests must have in common to share a fetch, in canonical form.
    ///
    /// With `decode: no` the form omits fields that describe the client or its preferences, and those that only choose
    /// the cache mode.
    ///
    /// - Parameter includesAll: Whether the form omits no field.
    public func coalescingFields(includesAll: Bool) -> [UInt8] {
        guard !route.decodesBody, !includesAll else { return fields.canonicalBytes }
        let hasMode = CacheControl(request: fields).equivalentCacheMode != nil
        return fields.canonicalBytes { field in
            !Self.isPreference(field) && !(hasMode && (field.isNamed("cache-control") || field.isNamed("pragma")))
        }
    }

    /// Returns the cache mode of the request: the one that FETCH names or, with `decode: no` and without one, that of
    /// `Cache-Control` and `Pragma`.
    public func effectiveCacheMode(_ named: CacheMode) -> CacheMode {
        guard !route.decodesBody, named == .default else { return named }
        return CacheControl(request: fields).equivalentCacheMode ?? named
    }

    /// Returns whether the response to another request, which differs in fields that `coalescingFields` omits, suits
    /// this one: `Vary` names none of those that differ, and this client accepts its coding and type.
    public func acceptsResponse(_ response: HeaderFields, to other: HTTPRequest) -> Bool {
        let (own, others) = (preferenceFields, other.preferenceFields)
        guard own != others else { return true }
        guard let key = VaryKey(response: response, request: own),
            key == VaryKey(response: response, request: others)
        else { return false }
        return fields.acceptResponse(response)
    }

    private var preferenceFields: HeaderFields {
        var fields = fields
        fields.removeAll { !Self.isPreference($0) }
        return fields
    }

    private static func isPreference(_ field: HeaderField) -> Bool {
        preferenceFieldNames.contains { field.isNamed($0) }
            || preferenceFieldPrefixes.contains { prefix in
                field.name.prefix(prefix.utf8.count).map(\.lowercased).elementsEqual(prefix.utf8)
            }
    }

    private static let preferenceFieldNames = [
        "accept", "accept-encoding", "accept-language", "user-agent", "via", "upgrade-insecure-requests", "sec-gpc",
        "dnt", "save-data", "priority", "referer",
    ]

    private static let preferenceFieldPrefixes = ["sec-fetch-", "sec-ch-"]
}

extension HeaderFields {
    /// Returns whether a client with these request fields accepts the content coding and the media type of a response:
    /// RFC 9110, sections 12.5.1 and 12.5.3.
    ///
    /// Without Accept-Encoding it accepts no coding: clients that send none decode none.
    func acceptResponse(_ response: HeaderFields) -> Bool {
        acceptCodings(of: response) && acceptType(of: response)
    }

    private func acceptCodings(of response: HeaderFields) -> Bool {
        let weights = acceptedMembers(of: "accept-encoding")
        let codings = FieldList.members(response.valueBytes(named: "content-encoding")).map(Self.codingName)
            .filter { $0 != "identity" }
        guard !codings.isEmpty else { return weights["identity"] ?? weights["*"] ?? true }
        return codings.allSatisfy { weights[$0] ?? weights["*"] ?? false }
    }

    private func acceptType(of response: HeaderFields) -> Bool {
        let weights = acceptedMembers(of: "accept")
        guard !weights.isEmpty, let value = response.valueBytes(named: "content-type").last,
            let type = FieldList.split(value, at: UInt8(ascii: ";")).first.map(Self.lowercased)
        else { return true }
        let kind = type.prefix { $0 != "/" }
        return weights[type] ?? weights["\(kind)/*"] ?? weights["*/*"] ?? false
    }

    /// Returns the members of a list with weights: whether each has a weight above 0. Parameters other than the weight
    /// are ignored.
    private func acceptedMembers(of name: String) -> [String: Bool] {
        var weights: [String: Bool] = [:]
        for member in FieldList.members(valueBytes(named: name)) {
            let parts = FieldList.split(member, at: UInt8(ascii: ";"))
            guard let first = parts.first else { continue }
            let weight = parts.dropFirst().map { Self.lowercased($0).filter { $0 != " " && $0 != "\t" } }
                .last { $0.hasPrefix("q=") }
            let isZero = weight.map { $0.dropFirst(2).allSatisfy { $0 == "0" || $0 == "." } } ?? false
            let key = Self.codingName(first)
            weights[key] = weights[key, default: false] || !isZero
        }
        return weights
    }

    private static func lowercased(_ bytes: ArraySlice<UInt8>) -> String {
        String(decoding: bytes.map(\.lowercased), as: UTF8.self)
    }

    /// Returns the name of a coding, or of another member, in lower case.
    private static func codingName(_ bytes: ArraySlice<UInt8>) -> String {
        switch lowercased(bytes) {
        case "x-gzip": "gzip"
        case let name: name
        }
    }
}

/// Request method: RFC 9110, section 9. Methods are case-sensitive.
public struct HTTPMethod: Hashable, Sendable, CustomStringConvertible {
    public static let get = HTTPMethod(unchecked: "GET")
    public static let head = HTTPMethod(unchecked: "HEAD")
    public static let post = HTTPMethod(unchecked: "POST")

    /// Method as written on the wire.
    public let description: String

    /// Accepts any token of at most `HTTPLimits.methodBytes` bytes; nil for other text.
    public init?(_ name: String) {
        if name == Self.get.description {
            self = .get
            return
        }
        let count = name.utf8.count
        guard count > 0, count <= HTTPLimits.methodBytes, name.utf8.allSatisfy(\.isTokenByte) else { return nil }
        description = name
    }

    private init(unchecked name: String) {
        description = name
    }

    /// Whether the method is idempotent: RFC 9110, section 9.2.2. Unknown methods are not.
    public var isIdempotent: Bool { Fetch.Options.idempotentMethods.contains(description) }

    /// Whether a request may use the method. CONNECT is for proxies, TRACE exposes credentials in the response. The
    /// Fetch standard, "forbidden method".
    public var isAllowedInRequests: Bool {
        canCoalesce || !["CONNECT", "TRACE", "TRACK"].contains(description.uppercased())
    }

    /// Whether requests with this method may be coalesced. Such requests have no body.
    public var canCoalesce: Bool { self == .get || self == .head }
}

/// Trust scope: all requests without credentials, or all requests with the same credentials.
public struct TrustScope: Hashable, Sendable, CustomStringConvertible {
    /// Scope of requests without credentials.
    public static let credentialFree = TrustScope(credentialMaterial: [])

    /// Credentials in canonical form, including secrets; empty for `credentialFree`.
    private let credentialMaterial: [UInt8]

    /// Input for a digest with a secret salt. Never write it to a log, disk or connection.
    public var secretBytes: [UInt8] { credentialMaterial }

    init(credentialMaterial: [UInt8]) {
        self.credentialMaterial = credentialMaterial
    }

    /// Whether this is the scope of requests without credentials.
    public var isCredentialFree: Bool { credentialMaterial.isEmpty }

    /// `shared` for the scope without credentials, otherwise `private`; contains no credentials.
    public var description: String { isCredentialFree ? "shared" : "private" }
}
