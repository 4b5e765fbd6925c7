public import EarshotWire

/// HTTP request of one hop of a flight.
public struct HTTPRequest: Hashable, Sendable {
    public var method: HTTPMethod
    public var url: FetchURL
    public var fields: HeaderFields
    /// Route to the server.
    public var route: Route
    /// Root handler that owns the cookie jar; nil without cookies.
    public var jar: String?

    public init(
        method: HTTPMethod = .get, url: FetchURL, fields: HeaderFields = HeaderFields(), route: Route = Route(),
        jar: String? = nil
    ) {
        self.route = route
        self.jar = jar
        self.method = method
        self.url = url
        self.fields = fields
    }
}
