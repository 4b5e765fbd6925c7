internal import EarshotWire

/// Key of a stored response: RFC 9111, section 2, extended by the trust scope.
///
/// The method is not part of it: only responses to GET are stored, and they also answer HEAD. `VaryKey` distinguishes
/// the variants of one key.
public struct CacheKey: Hashable, Sendable {
    /// URL without fragment and user information. The user information is part of the scope.
    public let url: FetchURL
    /// Trust scope of the response. A request of another scope never uses it.
    public let scope: TrustScope
    /// Additional key chosen by the client that separates otherwise equal requests; usually empty. A body that is not
    /// decoded has an addition that no client can choose.
    public let partition: String

    /// Returns the key of a request.
    ///
    /// - Parameters:
    ///   - partition: Separates otherwise equal requests.
    ///   - credentials: Rule by which requests share flights. Requests that share a flight share stored responses.
    public init(
        _ request: HTTPRequest, partition: String = "", credentials: CredentialRule = .standard
    ) {
        self.partition = request.route.decodes ? partition : partition + "\tundecoded"
        url = Self.plain(request.url)
        scope = credentials.scope(of: request)
    }

    /// Returns `url` in the form used in keys.
    static func plain(_ url: FetchURL) -> FetchURL {
        // Cannot fail: the result is shorter than an accepted URL and consists of its parts.
        (try? url.withUserinfo(of: nil)) ?? url
    }
}
