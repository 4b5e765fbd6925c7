internal import EarshotLoop
internal import EarshotWire

/// Turns items of a run of `earshot get` into requests.
struct RequestTemplate {
    let handler: HandlerID
    /// Prefix of the request IDs; empty for a handler that no other program knows.
    private let prefix: String
    private let options: RequestOptions
    /// Body of each request; nil for none.
    private let body: [UInt8]?
    /// Credentials of hosts; nil for none.
    private let netrc: Netrc?
    private let usesCookies: Bool
    private let files: FileOptions
    /// Request with the options, made once.
    private var base: Fetch?

    /// - Parameter prefix: prefix of the request IDs, for a handler that other programs may share.
    init(
        _ options: RequestOptions, of handler: HandlerID, prefix: String, body: [UInt8]?, netrc: Netrc?,
        usesCookies: Bool, _ files: FileOptions
    ) {
        self.options = options
        self.handler = handler
        self.prefix = prefix
        self.body = body
        self.netrc = netrc
        self.usesCookies = usesCookies
        self.files = files
    }

    /// Whether other programs may have requests of the handler.
    var isShared: Bool { !prefix.isEmpty }

    func request(of item: OutputItem) -> RequestID? { RequestID("\(prefix)\(item.index)") }

    /// Outcome of an item that cannot be requested; nil for others.
    static func refusal(of item: OutputItem) -> FetchOutcome? {
        let url = item.entry.url
        if let fault = item.entry.fault { return FetchOutcome(url: url, code: FetchOutcome.badOption, detail: fault) }
        return URLText.wire(url) ?? "" == "" ? FetchOutcome(malformed: url) : nil
    }

    /// Creates the request of an item. With `--continue` it asks for the rest of the file.
    ///
    /// - Parameters:
    ///   - existing: the item's file; nil without one.
    ///   - path: path of the item's file, as far as it is known.
    ///   - streams: whether the body is written while it grows.
    ///   - progressMilliseconds: interval of reports about a body that is not streamed; nil for none.
    mutating func fetch(
        _ request: RequestID, _ item: inout OutputItem, existing: ExistingFile?, path: String?, streams: Bool,
        progressMilliseconds: Int?
    ) -> Fetch {
        let url = item.entry.url
        var fetch = base ?? options.fetch(handler, request, "", body: body)
        if base == nil {
            if usesCookies { fetch.options.usesCookies = true }
            base = fetch
        }
        fetch.request = request
        fetch.url = URLText.wire(url) ?? ""
        // The bytes of a coding could not be continued.
        let decodes = !files.resumes && options.decodes(url, file: path)
        if fetch.options.route.decodes != decodes { fetch.options.route.decodes = decodes }
        fetch.options.streams = streams || files.resumes
        // A streamed body is written at each report, so its reports keep the broker's interval.
        if let progressMilliseconds, !fetch.options.streams {
            fetch.options.progressMilliseconds = progressMilliseconds
        }
        item.entry.apply(to: &fetch)
        fetch.addFormType()
        netrc?.authorize(&fetch)
        if files.timestamping, let existing, existing.isRegular {
            fetch.add(field: "if-modified-since: \(FileTime.text(existing.modified))")
        }
        if files.resumes, let existing, existing.isResumable { item.partial = existing }
        item.partial?.requestRest(&fetch)
        return fetch
    }
}
