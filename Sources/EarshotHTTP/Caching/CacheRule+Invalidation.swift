extension CacheRule {
    /// Returns the URLs whose stored responses, in all trust scopes, a response invalidates: RFC 9111, section 4.4.
    ///
    /// These are the URL of an unsafe request, and the targets of `Location` and `Content-Location` on the same origin.
    /// At most three, without duplicates, in the form used by `CacheKey`. None after an error or a safe method.
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
    /// Whether the method is safe, that is, read-only: RFC 9110, section 9.2.1.
    var isSafe: Bool {
        switch description {
        case "GET", "HEAD", "OPTIONS", "TRACE": true
        default: false
        }
    }
}
