import EarshotHTTP
import EarshotWire
import Testing

/// Concise requests and responses for the cache tests. Responses arrive at `CacheWorld.now`.
struct CacheWorld {
    /// Sun, 06 Nov 1994 08:49:37 GMT.
    static let now: Int64 = 784_111_777
    static let date = "date: Sun, 06 Nov 1994 08:49:37 GMT"

    let rule = CacheRule()

    static func fields(_ lines: String) -> HeaderFields { HeaderFields(lines: Array(lines.utf8)) }

    static func request(
        _ lines: String = "", method: HTTPMethod = .get, url: String = "http://a.example/x"
    ) throws -> HTTPRequest {
        HTTPRequest(method: method, url: try FetchURL(url), fields: fields(lines))
    }

    /// Returns a stored response with the current `Date`.
    static func stored(
        _ lines: String, status: Int = 200, for request: String = "", at time: Int64 = now, isInvalidated: Bool = false
    ) throws -> StoredResponse {
        let fields = fields(lines.contains("date:") ? lines : "\(date)\n\(lines)")
        let key = try #require(VaryKey(response: fields, request: Self.fields(request)))
        return StoredResponse(
            status: status, fields: fields, requestTime: time, responseTime: time, varyKey: key,
            isInvalidated: isInvalidated)
    }

    func storing(
        _ lines: String, status: Int = 200, to request: HTTPRequest, mode: CacheMode = .default
    ) -> StoreDecision {
        rule.storeDecision(
            status: status, response: Self.fields(lines), to: request, mode: mode, requestTime: Self.now,
            responseTime: Self.now)
    }
}

extension StoredResponse {
    /// Returns the same response, invalidated.
    func invalidated() -> StoredResponse {
        StoredResponse(
            status: status, fields: fields, requestTime: requestTime, responseTime: responseTime, varyKey: varyKey,
            isInvalidated: true)
    }
}
