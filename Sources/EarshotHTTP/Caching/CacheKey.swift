/// Under what an answer is kept: RFC 9111, section 2, and the scope of who may share it.
///
/// The method is none of it: only answers to GET are kept, and HEAD is answered by those. Which answers for one key
/// are for which request, `VaryKey` says.
public struct CacheKey: Hashable, Sendable {
    /// Without fragment and user information: that is part of the scope.
    public let url: FetchURL
    /// Whose answer it is: one of another scope is never used.
    public let scope: TrustScope
    /// What else parts those who share a flight: a client's own key. Empty for most.
    public let partition: String

    /// The key of what `request` asks for.
    ///
    /// - Parameters:
    ///   - partition: What parts requests that are equal otherwise.
    ///   - credentials: The rule by which requests share flights: what shares one shares answers.
    public init(
        _ request: HTTPRequest, partition: String = "", credentials: CredentialRule = .standard
    ) {
        self.partition = partition
        url = Self.plain(request.url)
        scope = credentials.scope(of: request)
    }

    /// `url` as a key has it.
    static func plain(_ url: FetchURL) -> FetchURL {
        // Shorter than a URL that was accepted, and made of parts of it.
        (try? url.withUserinfo(of: nil)) ?? url
    }
}
