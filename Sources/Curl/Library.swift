internal import CLibCurl

/// Loading and global initialization of libcurl.
enum Library {
    /// Reason why libcurl cannot be used; nil after successful initialization. The initializer of a static runs once,
    /// however many threads call.
    private static let failure: CurlError? = {
        if let sentence = unsafe curlshim_load(alertArrived) {
            return CurlError(.notLoaded, detail: unsafe String(cString: sentence))
        }
        let result = curlshim_global_init(Int(CURL_GLOBAL_DEFAULT))
        return result == CURLE_OK ? nil : CurlError(.noHandle, underlying: Int(result.rawValue))
    }()

    /// Whether the ends of HTTP/2 streams are detected, as determined by a request to a canned response. Otherwise
    /// libcurl reports a reset stream as complete, and HTTP/2 is not used.
    static let followsStreams: Bool = unsafe failure == nil && curlshim_follow_streams(streamNoted) != 0

    /// Loads and initializes libcurl on the first call. Must precede all other calls.
    static func initialize() throws(CurlError) {
        if let failure { throw failure }
    }
}
