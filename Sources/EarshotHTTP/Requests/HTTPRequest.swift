public import EarshotWire

/// HTTP request of one hop of a flight: the input of the rules for the cache, credentials and redirects.
public struct HTTPRequest: Hashable, Sendable {
    public var url: FetchURL
    public var method: HTTPMethod
    public var fields: HeaderFields
    /// Route to the server.
    public var route: Route
    /// Root handler that owns the cookie jar; nil without cookies.
    public var jar: String?
}

extension HTTPRequest {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(
        method: HTTPMethod = .get, url: FetchURL, fields: HeaderFields = HeaderFields(), route: Route = Route(),
        jar: String? = nil
    ) {
        self.init(url: url, method: method, fields: fields, route: route, jar: jar)
    }
}

extension HTTPRequest {
    /// Returns the request with fields added by a rule: conditions, a range, cookies. They replace fields of the same
    /// name.
    public func adding(_ added: HeaderFields) -> HTTPRequest {
        guard !added.isEmpty else { return self }
        var request = self
        let names = Set(added.map { $0.name.map(\.lowercased) })
        request.fields.removeAll { names.contains($0.name.map(\.lowercased)) }
        for field in added { request.fields.add(field.name, field.value) }
        return request
    }
}
