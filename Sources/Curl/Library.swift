internal import CLibCurl

/// The library as a whole.
enum Library {
    /// The result of `curl_global_init`, run once however many threads ask: a static's initialiser guards that.
    private static let initialized: CURLcode = curl_global_init(Int(CURL_GLOBAL_DEFAULT))

    /// Sets the library up, if that was not done yet.
    static func initialize() throws(CurlError) {
        guard initialized == CURLE_OK else { throw CurlError(.noHandle, underlying: Int(initialized.rawValue)) }
    }
}
