public import EarshotWire

/// What one hop of a flight asks of a server.
public struct HTTPRequest: Hashable, Sendable {
    public var method: HTTPMethod
    public var url: FetchURL
    public var fields: HeaderFields
    /// By which way it goes to its server.
    public var route: Route
    /// Whose cookies it takes part in: a handler's root; nil for nobody's.
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
