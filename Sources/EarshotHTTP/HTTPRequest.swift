/// What one hop of a flight asks of a server.
public struct HTTPRequest: Hashable, Sendable {
    public var method: HTTPMethod
    public var url: FetchURL
    public var fields: HeaderFields

    public init(method: HTTPMethod = .get, url: FetchURL, fields: HeaderFields = HeaderFields()) {
        self.method = method
        self.url = url
        self.fields = fields
    }
}
