public import EarshotWire

/// Where a redirect leads, and what goes there: the Fetch standard, "HTTP-redirect fetch", for a client without pages.
public struct RedirectRule: Hashable, Sendable {
    /// What the request wants done with a redirect.
    public var mode: RedirectMode
    /// Redirects followed for one request.
    public var hopLimit: Int
    /// What does not leave the origin it was given for.
    public var credentials: CredentialRule

    public init(
        mode: RedirectMode = .follow, hopLimit: Int = HTTPLimits.redirectHops,
        credentials: CredentialRule = .standard
    ) {
        self.mode = mode
        self.hopLimit = hopLimit
        self.credentials = credentials
    }

    /// Judges the answer to `request`.
    ///
    /// - Parameters:
    ///   - status: Any number a server sent.
    ///   - response: The answer's fields. Several `Location` that differ are refused, as the Fetch standard does.
    ///   - request: What was asked. Its user information goes on to the same origin and to no other; that which a
    ///     `Location` brings is dropped. (The Fetch standard refuses it in CORS mode, and else would use it.)
    ///   - hops: Redirects followed before this one.
    ///   - ancestors: The requests whose redirects led to `request`. One of the same method and URL is a loop, fields
    ///     notwithstanding: only credentials can have gone on the way.
    ///   - hosts: Encoder of an internationalized host name in `Location`.
    public func outcome(
        status: Int, response: HeaderFields, request: HTTPRequest, hops: Int, ancestors: some Sequence<HTTPRequest>,
        hosts: HostNameEncoder? = nil
    ) -> RedirectOutcome {
        guard [301, 302, 303, 307, 308].contains(status), mode != .manual else { return .notARedirect }
        guard mode == .follow else { return .refused(.redirectRefused) }
        let locations = response.values(bytes: "location")
        guard let location = locations.first else { return .notARedirect }
        guard locations.allSatisfy({ $0 == location }) else { return .refused(.redirectRefused) }

        var next = request
        do {
            next.url = try request.url.resolve(location.span, hosts: hosts)
            guard next.url.isHTTP else { return .refused(.redirectRefused) }
            let isSameOrigin = next.url.origin == request.url.origin
            next.url = try next.url.withUserinfo(of: isSameOrigin ? request.url : nil)
            if !isSameOrigin {
                next.fields = credentials.withoutCredentials(request.fields)
                next.route = credentials.withoutCredentials(request.route)
            }
        } catch {
            return .refused(.malformedURL)
        }
        if changesToGet(status, request.method) {
            next.method = .get
            next.fields.removeAll { field in Self.bodyFields.contains { field.isNamed($0) } }
        }
        func isNext(_ visited: HTTPRequest) -> Bool { visited.method == next.method && visited.url == next.url }
        guard !isNext(request), !ancestors.contains(where: isNext) else { return .refused(.redirectLoop) }
        guard hops < hopLimit else { return .refused(.tooManyRedirects) }
        return .follow(next)
    }

    /// Names that describe a body: "request-body-header name" of the Fetch standard.
    private static let bodyFields = ["content-encoding", "content-language", "content-location", "content-type"]

    /// Whether the next request is a GET, whatever this one was.
    private func changesToGet(_ status: Int, _ method: HTTPMethod) -> Bool {
        switch status {
        case 301, 302: method == .post
        case 303: method != .get && method != .head
        default: false
        }
    }
}
