internal import EarshotWire

/// Limits of the protocol that a request of the consumer must keep.
extension ClientConnection {
    /// Head bytes reserved for fields that a repetition adds: `request`, or another priority.
    private static let addedBytes = 64

    /// Checks a request against the limits of the protocol.
    ///
    /// - Throws: `ClientError` if the request exceeds a limit.
    static func check(_ fetch: Fetch) throws(ClientError) {
        guard (1...WireLimits.urlBytes).contains(fetch.url.utf8.count),
            fetch.url.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f })
        else {
            throw ClientError(
                .invalidRequest,
                "the URL is invalid: use 1 to \(WireLimits.urlBytes) bytes of UTF-8 without spaces and control characters"
            )
        }
        let mostBytes = WireLimits.headBytes - addedBytes
        guard hasShortHead(fetch) || ClientMessage.fetch(fetch).encoded().count <= mostBytes else {
            throw ClientError(.invalidRequest, "the header fields are too long: use at most \(mostBytes) bytes")
        }
        guard fetch.body?.count ?? 0 <= WireLimits.requestBodyBytes else {
            throw ClientError(
                .invalidRequest, "the request body is too long: use at most \(WireLimits.requestBodyBytes) bytes")
        }
    }

    /// Returns whether the head is far below its limit, without encoding it.
    private static func hasShortHead(_ fetch: Fetch) -> Bool {
        fetch.url.utf8.count + fetch.httpFields.count + fetch.options.textBytes <= WireLimits.headBytes / 2
    }
}
