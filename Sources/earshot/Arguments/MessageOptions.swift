internal import ArgumentParser

/// Options for the messages of `earshot get` on standard error.
struct MessageOptions: ParsableArguments {
    @Flag(
        name: .shortAndLong,
        help: """
            Show complete URLs, with user information and query, which may be secret, and bodies from the cache.
            """)
    var verbose = false

    @Flag(name: .shortAndLong, help: "Show errors only: no progress, and no summary at the end.")
    var quiet = false

    func validate() throws {
        guard !quiet || !verbose else { throw ValidationError("-q and -v exclude each other; give one of them") }
    }
}
