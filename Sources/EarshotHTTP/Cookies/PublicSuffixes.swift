/// Public suffixes: domains such as `com` and `co.uk`, below which names belong to different owners. Servers must not set
/// cookies for them: RFC 6265bis, section 5.7.
public struct PublicSuffixes: Sendable {
    private let lookUp: @Sendable (String) -> Bool?

    /// No list.
    public static let unknown = PublicSuffixes { _ in nil }

    /// - Parameter lookUp: Returns whether a domain with a dot, in lower-case ASCII, is a public suffix; nil without a
    ///   list.
    public init(_ lookUp: @escaping @Sendable (String) -> Bool?) {
        self.lookUp = lookUp
    }

    /// Returns whether a domain in lower-case ASCII is a public suffix; nil if that is unknown. A domain without an inner
    /// dot is one, such as `com` and `localhost`.
    func contains(_ domain: String) -> Bool? {
        // A dot at the end makes another host, and no other suffix.
        let name = domain.utf8.last == UInt8(ascii: ".") ? String(domain.dropLast()) : domain
        return name.utf8.contains(UInt8(ascii: ".")) ? lookUp(name) : true
    }
}
