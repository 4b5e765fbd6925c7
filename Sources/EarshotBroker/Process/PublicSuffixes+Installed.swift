internal import EarshotHTTP
internal import PSL

extension PublicSuffixes {
    /// The list of libpsl, which is loaded on first use.
    static let installed = PublicSuffixes { PublicSuffixList.contains($0) }
}
