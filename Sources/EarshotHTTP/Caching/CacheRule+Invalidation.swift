extension CacheRule {
    /// The URLs whose kept answers, in all trust scopes, an answer makes doubtful: RFC 9111, section 4.4.
    ///
    /// Those are the URL of a request that may have changed something, and what `Location` and `Content-Location` name
    /// on the same origin; at most three, each once, as `CacheKey` has them. None after an error or a safe method.
    public func invalidations(status: Int, response: HeaderFields, to request: HTTPRequest) -> [FetchURL] {
        guard !request.method.isSafe, (200..<400).contains(status) else { return [] }
        var urls = [CacheKey.plain(request.url)]
        for name in ["location", "content-location"] {
            guard let reference = response.agreed(name), let url = try? request.url.resolve(reference.span),
                url.origin == request.url.origin
            else { continue }
            let plain = CacheKey.plain(url)
            if !urls.contains(plain) { urls.append(plain) }
        }
        return urls
    }
}

extension HTTPMethod {
    /// Whether it is known to ask for nothing but an answer: RFC 9110, section 9.2.1.
    var isSafe: Bool {
        switch description {
        case "GET", "HEAD", "OPTIONS", "TRACE": true
        default: false
        }
    }
}
