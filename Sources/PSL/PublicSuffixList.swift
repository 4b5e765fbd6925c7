internal import CLibPSL

/// The list of public suffixes (publicsuffix.org), by libpsl. The broker uses it for cookies.
public enum PublicSuffixList {
    /// Whether library and list cannot be used. The initializer of a static runs once, however many threads call.
    private static let isMissing: Bool = unsafe pslshim_load() != nil

    /// Returns whether a domain in lower-case ASCII is a public suffix, such as `co.uk`; nil without a list.
    public static func contains(_ domain: String) -> Bool? {
        guard !isMissing else { return nil }
        return unsafe pslshim_is_public_suffix(domain) != 0
    }
}
