internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Options of a request, for each command that sends requests.
struct RequestOptions: ParsableArguments {
    @OptionGroup var values: FetchValues

    @Option(
        name: [.customShort("X"), .long],
        help: "The method: GET, or POST with --data. What is neither GET nor HEAD is asked alone, and not twice.")
    var method: String?

    @Option(
        help: ArgumentHelp("What to send, or @FILE for what is in a file; @- is standard input.", valueName: "text"))
    var data: String?

    @Flag(help: "Share the fetch with nobody.")
    var alone = false

    @Option(help: "A proxy, http://, https:// or socks5://HOST:PORT; none for none. Else what the environment says.")
    var proxy: String?

    @Option(help: "File of certificates to trust instead of the system's.", completion: .file())
    var caFile: String?

    @Option(name: .customLong("cert"), help: "File with the certificate to show, PEM.", completion: .file())
    var certificate: String?

    @Option(name: .customLong("key"), help: "File with its key, if that is another.", completion: .file())
    var certificateKey: String?

    @Option(name: [.customShort("H"), .long], help: ArgumentHelp("A header field to send.", valueName: "name: value"))
    var header: [String] = []

    func validate() throws {
        if let method {
            guard (1...WireLimits.identifierBytes).contains(method.utf8.count),
                method.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
            else { throw ValidationError("--method is one word") }
        }
        if data != nil, let method, ["GET", "HEAD"].contains(method) {
            throw ValidationError("--data is not for \(method)")
        }
        if let proxy, !Route.isProxy(proxy) {
            throw ValidationError("--proxy is a URL of http, https or socks5, or none")
        }
        guard certificate != nil || certificateKey == nil else { throw ValidationError("--key needs --cert") }
        let files = [("--ca-file", caFile), ("--cert", certificate), ("--key", certificateKey)]
        for case (let option, let path?) in files { try TrustFile.check(path, option) }
        for field in header {
            guard let colon = field.firstIndex(of: ":"), colon > field.startIndex,
                field.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
            else { throw ValidationError("--header is NAME: VALUE on one line") }
        }
    }

    /// Request body from --data; nil without one.
    func body() throws(Complaint) -> [UInt8]? {
        guard let data else { return nil }
        guard data.utf8.first == UInt8(ascii: "@") else { return ByteText.bytes(of: data) }
        return try InputFile.read(String(data.dropFirst()), atMost: WireLimits.requestBodyBytes)
    }

    /// Creates the request that the options describe.
    func fetch(_ handler: HandlerID, _ request: RequestID, _ url: String, body: [UInt8]?) -> Fetch {
        var fetch = Fetch(handler: handler, request: request, url: url)
        fetch.body = body
        values.apply(to: &fetch.options)
        fetch.options.method = method ?? (body == nil ? "GET" : "POST")
        fetch.options.coalesces = !alone && ["GET", "HEAD"].contains(fetch.options.method)
        fetch.options.route.proxy = proxy
        fetch.options.route.caFile = caFile.map(Folder.absolute)
        fetch.options.route.clientCertificate = certificate.map(Folder.absolute)
        fetch.options.route.clientKey = certificateKey.map(Folder.absolute)
        fetch.httpFields = ByteText.bytes(of: header.joined(separator: "\n"))
        return fetch
    }
}
