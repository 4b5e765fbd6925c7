internal import ArgumentParser
internal import EarshotWire

/// Options for files of cookies.
struct CookieOptions: ParsableArguments {
    @Option(
        name: [.customShort("b"), .customLong("cookie-file")],
        help: ArgumentHelp(
            "Send the cookies of a file in the Netscape format, and those that servers set. Implies --cookies.",
            valueName: "file"),
        completion: .file())
    var input: String?

    @Option(
        name: [.customShort("c"), .customLong("cookie-jar")],
        help: ArgumentHelp(
            "Write all cookies to a file at the end, in the Netscape format. Implies --cookies.", valueName: "file"),
        completion: .file())
    var output: String?

    /// Whether the requests use cookies of a file.
    var areUsed: Bool { input != nil || output != nil }

    func validate() throws {
        guard input != "-", output != "-" else {
            throw ValidationError("--cookie-file and --cookie-jar need files; - is not supported")
        }
    }

    /// Reads the cookies of the file. Waits for the writer of a named pipe.
    func read() throws(CommandError) -> [FileCookie] {
        guard let input else { return [] }
        // The first run of a command that updates its file has none.
        return try CookieFile.read(input, mayBeMissing: input == output)
    }

    /// Returns the exchange of cookies for the requests of a handler; nil without one.
    ///
    /// The exchange has another handler of the same root, so the jar stays when an interrupt removes the requests.
    ///
    /// - Parameter cookies: those of the file.
    func exchange(_ cookies: [FileCookie], besides handler: HandlerID) -> CookieExchange? {
        guard areUsed else { return nil }
        let root = handler.description.prefix { $0 != "/" }
        let own = HandlerID("\(root)/cookies-\(String(UInt32.random(in: 0 ... .max), radix: 16))")
        return CookieExchange(cookies, output: output, of: own ?? handler)
    }
}
