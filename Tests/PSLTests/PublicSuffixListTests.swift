import PSL
import Testing

/// Names in the list of libpsl, and names that are not.
@Suite struct PublicSuffixListTests {
    @Test(
        "a public suffix is one of a registry or of a private owner, and no name below it",
        arguments: [
            ("com", true), ("co.uk", true), ("github.io", true), ("example.com", false), ("example.co.uk", false),
            ("xn--55qx5d.cn", true), ("www.ck", false), ("other.ck", true), ("city.kawasaki.jp", false),
            ("earshot.invalid", false), ("invalid", true),
        ])
    func contains(domain: String, isPublic: Bool) {
        #expect(PublicSuffixList.contains(domain) == isPublic)
    }
}
