internal import CLibCurl

/// The library as a whole.
enum Library {
    /// The result of `curl_global_init`, run once however many threads ask: a static's initialiser guards that.
    private static let initialized: CURLcode = curl_global_init(Int(CURL_GLOBAL_DEFAULT))

    /// Sets the library up, if that was not done yet.
    static func initialize() throws(CurlError) {
        guard initialized == CURLE_OK else { throw CurlError(.noHandle, underlying: Int(initialized.rawValue)) }
    }

    /// The content codings that are built in, as `Accept-Encoding` lists them.
    static let codings: String = {
        guard let information = unsafe curl_version_info(CURLVERSION_FIRST) else { return "identity" }
        let features = unsafe information.pointee.features
        let known = [
            (CURL_VERSION_LIBZ, "deflate, gzip"), (CURL_VERSION_BROTLI, "br"), (CURL_VERSION_ZSTD, "zstd"),
        ]
        let codings = known.filter { features & $0.0 != 0 }.map(\.1)
        return codings.isEmpty ? "identity" : codings.joined(separator: ", ")
    }()
}
