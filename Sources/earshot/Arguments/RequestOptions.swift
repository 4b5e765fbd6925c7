internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Options of a request, for each command that sends requests.
struct RequestOptions: ParsableArguments {
    @OptionGroup(title: "Request") var handling: HandlingOptions
    @OptionGroup(title: "HTTP") var exchange: HTTPOptions
    @OptionGroup(title: "Network") var network: NetworkOptions

    /// Request body from --data; nil without one.
    func body() throws(Complaint) -> [UInt8]? {
        guard let data = exchange.data else { return nil }
        guard data.utf8.first == UInt8(ascii: "@") else { return ByteText.bytes(of: data) }
        return try InputFile.read(String(data.dropFirst()), atMost: WireLimits.requestBodyBytes)
    }

    /// Creates the request that the options describe.
    func fetch(_ handler: HandlerID, _ request: RequestID, _ url: String, body: [UInt8]?) -> Fetch {
        var fetch = Fetch(handler: handler, request: request, url: url)
        fetch.body = body
        handling.values.apply(to: &fetch.options)
        exchange.values.apply(to: &fetch.options)
        fetch.options.method = exchange.method ?? (body == nil ? "GET" : "POST")
        fetch.options.coalesces = !handling.alone && ["GET", "HEAD"].contains(fetch.options.method)
        fetch.options.route.proxy = network.proxy
        fetch.options.route.caFile = network.caFile.map(Folder.absolute)
        fetch.options.route.clientCertificate = network.certificate.map(Folder.absolute)
        fetch.options.route.clientKey = network.certificateKey.map(Folder.absolute)
        fetch.httpFields = ByteText.bytes(of: exchange.header.joined(separator: "\n"))
        return fetch
    }
}

/// Options for the handling of a request by the bus.
struct HandlingOptions: ParsableArguments {
    @OptionGroup var values: FetchValues<HandlingSection>

    @Flag(help: "Do not coalesce with equal requests.")
    var alone = false
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
        help: ArgumentHelp("Request body, or @FILE for the content of a file; @- is standard input.", valueName: "text")
    )
    var data: String?

    @Option(
        name: [.customShort("H"), .long],
        help: ArgumentHelp("Header field to send; may be repeated.", valueName: "name: value"))
    var header: [String] = []

    @OptionGroup var values: FetchValues<HTTPSection>

    func validate() throws {
        if let method {
            guard (1...WireLimits.identifierBytes).contains(method.utf8.count),
                method.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
            else { throw ValidationError("--method: give a single word in printable ASCII, such as PUT") }
        }
        if data != nil, let method, ["GET", "HEAD"].contains(method) {
            throw ValidationError("--data: a \(method) request has no body; give another method, such as -X POST")
        }
        for field in header {
            guard Self.isField(field) else { throw ValidationError("--header: give 'NAME: VALUE' on one line") }
        }
    }

    /// Whether text has the form of a header field, without control characters.
    static func isField(_ text: String) -> Bool {
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")), colon > text.startIndex else { return false }
        return text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }
}

/// Options for the connection of a request.
struct NetworkOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            Proxy: http://, https:// or socks5:// with HOST:PORT, or none. (default: from the environment of the workers)
            """, valueName: "url"))
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

    func validate() throws {
        if let proxy, !Route.isProxy(proxy) {
            throw ValidationError("--proxy: give http://, https:// or socks5:// with HOST:PORT, or none")
        }
        guard certificate != nil || certificateKey == nil else {
            throw ValidationError("--key requires the certificate; give --cert as well")
        }
        let files = [("--ca-file", caFile), ("--cert", certificate), ("--key", certificateKey)]
        for case (let option, let path?) in files { try TrustFile.check(path, option) }
    }
}
