internal import CLibCurl

/// The library as a whole.
enum Library {
    /// Why it cannot be used; nil once it is loaded and set up. Done once however many threads ask: a static's
    /// initialiser guards that.
    private static let failure: CurlError? = {
        if let sentence = unsafe curlshim_load(goodbyeSaid) {
            return CurlError(.notLoaded, detail: unsafe String(cString: sentence))
        }
        let result = curlshim_global_init(Int(CURL_GLOBAL_DEFAULT))
        return result == CURLE_OK ? nil : CurlError(.noHandle, underlying: Int(result.rawValue))
    }()

    /// Whether the ends of HTTP/2 streams are detected, as a request to a canned response showed. Without that libcurl
    /// reports a reset stream as whole, and HTTP/2 is not used.
    static let followsStreams: Bool = unsafe failure == nil && curlshim_follow_streams(streamNoted) != 0

    /// Loads the library and sets it up, if that was not done yet; before it nothing of it may be called.
    static func initialize() throws(CurlError) {
        if let failure { throw failure }
    }
}
