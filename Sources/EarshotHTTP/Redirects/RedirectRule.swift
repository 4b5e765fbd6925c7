public import EarshotWire

/// Evaluates redirects: target and fields of the next request. The Fetch standard, "HTTP-redirect fetch", for a client
/// without pages.
public struct RedirectRule: Hashable, Sendable {
    /// Redirect mode of the request.
    public var mode: RedirectMode
    /// Maximum number of redirects per request.
    public var hopLimit: Int
    /// Credentials, which must not leave their origin.
    public var credentialRule: CredentialRule

    public init(
        mode: RedirectMode = .follow, hopLimit: Int = HTTPLimits.redirectHops,
        credentialRule: CredentialRule = .standard
    ) {
        self.mode = mode
        self.hopLimit = hopLimit
        self.credentialRule = credentialRule
    }

    /// Evaluates the response to `request`.
    ///
    /// - Parameters:
    ///   - status: Any number that a server sent.
    ///   - response: Fields of the response. Several different `Location` fields are refused, as in the Fetch standard.
    ///   - request: Request that was sent. Its user information is kept for the same origin only. User information in
    ///     `Location` is dropped. (The Fetch standard rejects it in CORS mode, and uses it otherwise.)
    ///   - hops: Number of redirects already followed.
    ///   - ancestors: Requests whose redirects led to `request`. An equal method and URL is a loop, even with other
    ///     fields, because only credentials can have been dropped in between. Cookies of a jar can also have been set,
    ///     so they must be equal, too.
    ///   - hosts: Encoder of an internationalized host name in `Location`.
    ///   - withCookies: Returns a request with the cookies of its jar.
    public func outcome(
        status: Int, response: HeaderFields, request: HTTPRequest, hops: Int, ancestors: some Sequence<HTTPRequest>,
        hosts: HostNameEncoder? = nil, withCookies: (HTTPRequest) -> HTTPRequest = { $0 }
    ) -> RedirectOutcome {
        guard [301, 302, 303, 307, 308].contains(status), mode != .manual else { return .notARedirect }
        guard mode == .follow else { return .refused(.redirectRefused) }
        let locations = response.valueBytes(named: "location")
        guard let location = locations.first else { return .notARedirect }
        guard locations.allSatisfy({ $0 == location }) else { return .refused(.redirectRefused) }

        var next = request
        do throws(FetchURL.ParseError) {
            next.url = try request.url.resolve(location.span, hostEncoder: hosts)
            guard next.url.isHTTP else { return .refused(.redirectRefused) }
            let isSameOrigin = next.url.origin == request.url.origin
            next.url = try next.url.withUserinfo(of: isSameOrigin ? request.url : nil)
            if !isSameOrigin {
                next.fields = credentialRule.withoutCredentials(request.fields)
                next.route = credentialRule.withoutCredentials(request.route)
            }
        } catch {
            return .invalidTarget(error)
        }
        if changesToGet(status, request.method) {
            next.method = .get
            next.fields.removeAll { field in Self.bodyFieldNames.contains { field.isNamed($0) } }
        }
        next = withCookies(next)
        func isNext(_ visited: HTTPRequest) -> Bool {
            visited.method == next.method && visited.url == next.url
                && (next.cookieJarOwner == nil
                    || visited.fields.valueBytes(named: "cookie") == next.fields.valueBytes(named: "cookie"))
        }
        guard !isNext(request), !ancestors.contains(where: isNext) else { return .refused(.redirectLoop) }
        guard hops < hopLimit else { return .refused(.tooManyRedirects) }
        return .follow(next)
    }

    /// Fields that describe a body: "request-body-header name" of the Fetch standard.
    private static let bodyFieldNames = ["content-encoding", "content-language", "content-location", "content-type"]

    /// Returns whether the next request becomes a GET.
    private func changesToGet(_ status: Int, _ method: HTTPMethod) -> Bool {
        switch status {
        case 301, 302: method == .post
        case 303: method != .get && method != .head
        default: false
        }
    }
}

/// Result of evaluating a possible redirect.
public enum RedirectOutcome: Hashable, Sendable {
    /// Send this request next.
    case follow(HTTPRequest)
    /// Deliver the response.
    case notARedirect
    /// Fail the request: `redirectRefused`, `redirectLoop` or `tooManyRedirects`.
    case refused(FailureCode)
    /// Fail the request as `malformedURL`: the target is invalid.
    case invalidTarget(FetchURL.ParseError)
}
