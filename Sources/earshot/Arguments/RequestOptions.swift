internal import ArgumentParser
internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Options of a request, for each command that sends requests.
///
/// The groups are not nested deeper: a debug build of the argument parser validates each level five times as often as
/// the one above.
struct RequestOptions: ParsableArguments {
    @OptionGroup(title: "Request") var handlingValues: FetchOptionValues<HandlingSection>
    @OptionGroup(title: "Request") var handling: HandlingOptions
    @OptionGroup(title: "HTTP") var exchange: HTTPOptions
    @OptionGroup(title: "HTTP") var exchangeValues: FetchOptionValues<HTTPSection>
    @OptionGroup(title: "Network") var network: NetworkOptions

    /// Reads the request body of --data; nil without one.
    func readBody() throws(CommandError) -> [UInt8]? {
        guard let data = exchange.data else { return nil }
        guard data.utf8.first == UInt8(ascii: "@") else { return ByteText.bytes(of: data) }
        return try InputFile.read(String(data.dropFirst()), atMost: WireLimits.requestBodyBytes)
    }

    /// Reads the credentials of hosts from the netrc file; nil without --netrc.
    func readNetrc() throws(CommandError) -> Netrc? {
        guard exchange.netrc || exchange.netrcFile != nil else { return nil }
        guard let path = exchange.netrcFile ?? Netrc.defaultPath else {
            throw CommandError(.noInput, "cannot find ~/.netrc: HOME is unset; give --netrc-file FILE")
        }
        return try Netrc.read(path)
    }

    /// Returns the HTTP method of a request with this body.
    func httpMethod(forBody body: [UInt8]?) -> String {
        exchange.method ?? (exchange.head ? "HEAD" : body == nil ? "GET" : "POST")
    }

    /// Whether the body of a URL is decoded.
    ///
    /// - Parameter file: path of its file, if that is known; nil otherwise.
    func decodesBody(ofURL url: String, file: String?) -> Bool {
        !exchange.noDecode && !ArchiveName.matches(url: url) && file.map({ ArchiveName.matches($0) }) != true
    }

    /// Creates the request that the options describe.
    func makeFetch(handler: HandlerID, request: RequestID, url: String, body: [UInt8]?) -> Fetch {
        var fetch = Fetch(handler: handler, request: request, url: url)
        fetch.body = body
        handlingValues.apply(to: &fetch.options)
        exchangeValues.apply(to: &fetch.options)
        fetch.options.method = httpMethod(forBody: body)
        fetch.options.expectedSHA256 = handling.checksum?.hex
        fetch.options.coalesces = !handling.alone && ["GET", "HEAD"].contains(fetch.options.method)
        fetch.options.route.proxy = network.proxy
        fetch.options.route.caFile = network.caFile.map(Folder.absolutePath)
        fetch.options.route.clientCertificate = network.certificate.map(Folder.absolutePath)
        fetch.options.route.clientKey = network.certificateKey.map(Folder.absolutePath)
        fetch.options.route.verifiesServer = !network.insecure
        if exchange.noDecode { fetch.options.route.decodesBody = false }
        fetch.httpFields = ByteText.bytes(of: exchange.headerFields.joined(separator: "\n"))
        return fetch
    }
}

/// Options for the handling of a request by the bus.
struct HandlingOptions: ParsableArguments {
    @Flag(help: "Do not coalesce with equal requests.")
    var alone = false

    @Option(
        help: ArgumentHelp(
            "Fail with exit code 65 and write no file unless the body has this SHA-256, sha256:HEX. Only for one URL.",
            valueName: "digest"))
    var checksum: Checksum?
}

/// Options for the HTTP exchange of a request.
struct HTTPOptions: ParsableArguments {
    @Option(
        name: [.customShort("X"), .long],
        help: """
            HTTP method. Methods other than GET and HEAD are neither coalesced nor retried. (default: GET, or POST with \
            --data)
            """)
    var method: String?

    @Option(
        help: ArgumentHelp(
            "Request body, or @FILE for the content of a file; @- is standard input.", valueName: "text"))
    var data: String?

    @Option(
        name: [.customShort("H"), .long],
        help: ArgumentHelp("Header field to send; may be repeated.", valueName: "name: value"))
    var header: [String] = []

    @Flag(
        name: [.customShort("I"), .long],
        help: "Send HEAD instead of GET. get prints the status and the header fields of the response.")
    var head = false

    @Option(
        name: [.customShort("A"), .long],
        help: ArgumentHelp("User agent to send instead of that of the workers.", valueName: "name"))
    var userAgent: String?

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            """
            User and password for HTTP Basic authentication, USER:PASSWORD. Other users of this machine can see the \
            arguments of a command; prefer --netrc.
            """,
            valueName: "credentials"))
    var user: String?

    @Flag(help: "Authenticate with the entry of the URL's host in ~/.netrc, or in the file that NETRC names.")
    var netrc = false

    @Option(help: ArgumentHelp("As --netrc, with another file.", valueName: "file"), completion: .file())
    var netrcFile: String?

    @Flag(help: "Keep a content coding such as gzip. Implied by names of archives, such as a.tar.gz.")
    var noDecode = false

    /// Header fields to send, except those that depend on the URL.
    var headerFields: [String] {
        let userAgentField = userAgent.map { "user-agent: \($0)" }
        let authorizationField = user.flatMap(BasicCredentials.init)?.authorizationField
        return header + [userAgentField, authorizationField].compactMap(\.self)
    }

    func validate() throws {
        guard !head || method == nil && data == nil else {
            throw ValidationError("-I sends HEAD; omit --method and --data")
        }
        try validateFields()
        try PathCheck.check([("--netrc-file", netrcFile)])
        if let method {
            guard (1...WireLimits.identifierBytes).contains(method.utf8.count),
                method.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
            else { throw ValidationError("--method: give a single word in printable ASCII, such as PUT") }
        }
        if data != nil, let method, ["GET", "HEAD"].contains(method) {
            throw ValidationError("--data: a \(method) request has no body; give another method, such as -X POST")
        }
    }

    private func validateFields() throws {
        for field in header {
            guard Self.isHeaderField(field) else { throw ValidationError("--header: give 'NAME: VALUE' on one line") }
        }
        guard userAgent.map(Self.hasNoControlCharacters) ?? true else {
            throw ValidationError("--user-agent: give one line of text")
        }
        guard let user else { return }
        // No error repeats the value, which is secret.
        guard BasicCredentials(user) != nil else { throw ValidationError("--user: give USER:PASSWORD, or use --netrc") }
        guard !netrc, netrcFile == nil else { throw ValidationError("--user and --netrc exclude each other") }
    }

    /// Whether text has the form of a header field, without control characters.
    static func isHeaderField(_ text: String) -> Bool {
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")), colon > text.startIndex else { return false }
        return hasNoControlCharacters(text)
    }

    private static func hasNoControlCharacters(_ text: String) -> Bool {
        text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }
}

/// Options for the connection of a request.
struct NetworkOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            Proxy: [http://]HOST:PORT, https://, socks4:// or socks5://, or none. (default: from the environment of the \
            workers)
            """,
            valueName: "url"))
    var proxy: String?

    @Option(
        help: ArgumentHelp("CA certificates to trust instead of the system's, in PEM.", valueName: "file"),
        completion: .file())
    var caFile: String?

    @Option(
        name: .customLong("cert"), help: ArgumentHelp("Client certificate, in PEM.", valueName: "file"),
        completion: .file())
    var certificate: String?

    @Option(
        name: .customLong("key"),
        help: ArgumentHelp("Private key of the client certificate, if it is in another file.", valueName: "file"),
        completion: .file())
    var certificateKey: String?

    @Flag(
        name: [.customShort("k"), .long],
        help: """
            Accept any certificate of the server. Anyone on the network can then read and change the transfer; prefer \
            --ca-file.
            """)
    var insecure = false

    func validate() throws {
        if let proxy, proxy != Route.noProxy,
            (try? ProxyAddress(proxy)) == nil || proxy.utf8.count > WireLimits.urlBytes
        {
            throw ValidationError("--proxy: give \(ProxyAddress.ParseError.acceptedForms), or none")
        }
        guard certificate != nil || certificateKey == nil else {
            throw ValidationError("--key requires the certificate; give --cert as well")
        }
        let files = [("--ca-file", caFile), ("--cert", certificate), ("--key", certificateKey)]
        try PathCheck.check(files)
        for case (let option, let path?) in files { try TrustFile.check(path, option) }
    }
}

/// File names of compressed content. Its bytes are requested as published, because a server may declare the compression
/// of the file itself as a content coding.
enum ArchiveName {
    /// Endings in lower case, as in the table of docs/command-line.md.
    static let suffixes: Set = [
        "7z", "apk", "br", "bz2", "deb", "gz", "jar", "lz", "lz4", "lzma", "rar", "rpm", "svgz", "taz", "tbz", "tbz2",
        "tgz", "tlz", "txz", "tzst", "whl", "xz", "z", "zip", "zst",
    ]

    /// Whether a path ends in one of the endings, in any case.
    static func matches(_ path: String) -> Bool {
        guard let dot = path.utf8.lastIndex(of: UInt8(ascii: ".")) else { return false }
        let ending = path[path.utf8.index(after: dot)...]
        return ending.utf8.count <= 4 && suffixes.contains(ending.lowercased())
    }

    /// Whether the last segment of a URL's path has one of the endings.
    static func matches(url: String) -> Bool { matches(SafeFileNames.fileName(ofURL: url)) }
}
