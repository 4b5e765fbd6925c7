import EarshotHTTP

extension PublicSuffixes {
    /// A list with `co.uk`, `github.io` and the domains without an inner dot.
    static let registries = PublicSuffixes { ["co.uk", "github.io"].contains($0) }
}
