internal import EarshotLoop
internal import EarshotWire

/// Turns items of a run of `earshot get` into requests.
struct RequestTemplate {
    let handler: HandlerID
    /// Prefix of the request IDs; empty for a handler that no other program knows.
    private let requestIDPrefix: String
    private let options: RequestOptions
    /// Body of each request; nil for none.
    private let body: [UInt8]?
    /// Credentials of hosts; nil for none.
    private let netrc: Netrc?
    private let usesCookies: Bool
    private let files: FileOptions
    /// Request with the options, made once.
    private var baseFetch: Fetch?

    /// - Parameter prefix: prefix of the request IDs, for a handler that other programs may share.
    init(
        _ options: RequestOptions, of handler: HandlerID, prefix: String, body: [UInt8]?, netrc: Netrc?,
        usesCookies: Bool, _ files: FileOptions
    ) {
        self.options = options
        self.handler = handler
        self.requestIDPrefix = prefix
        self.body = body
        self.netrc = netrc
        self.usesCookies = usesCookies
        self.files = files
    }

    /// Whether other programs may have requests of the handler.
    var isShared: Bool { !requestIDPrefix.isEmpty }

    func requestID(of item: OutputItem) -> RequestID? { RequestID("\(requestIDPrefix)\(item.index)") }

    /// Outcome of an entry that cannot be requested; nil for others.
    static func rejectionOutcome(of entry: ListEntry) -> FetchOutcome? {
        if let fault = entry.fault {
            return FetchOutcome(url: entry.url, code: FetchOutcome.badOptionCode, detail: fault)
        }
        return URLText.wireForm(entry.url) ?? "" == "" ? FetchOutcome(malformedURL: entry.url) : nil
    }

    /// Creates the request of an item. With `--continue` it requests the rest of the file.
    ///
    /// - Parameters:
    ///   - existing: the item's file; nil without one.
    ///   - path: path of the item's file, as far as it is known.
    ///   - streams: whether the body is written while it grows.
    ///   - progressMilliseconds: interval of reports about a body that is not streamed; nil for none.
    mutating func makeFetch(
        _ request: RequestID, _ item: inout OutputItem, existing: ExistingFile?, path: String?, streams: Bool,
        progressMilliseconds: Int?
    ) -> Fetch {
        let url = item.entry.url
        var fetch = baseFetch ?? options.makeFetch(handler: handler, request: request, url: "", body: body)
        if baseFetch == nil {
            if usesCookies { fetch.options.usesCookies = true }
            baseFetch = fetch
        }
        fetch.request = request
        fetch.url = URLText.wireForm(url) ?? ""
        // The bytes of a coding could not be continued.
        let decodes = !files.resumes && options.decodesBody(ofURL: url, file: path)
        if fetch.options.route.decodesBody != decodes { fetch.options.route.decodesBody = decodes }
        fetch.options.streams = streams || files.resumes
        // A streamed body is written at each report, so its reports keep the broker's interval.
        if let progressMilliseconds, !fetch.options.streams {
            fetch.options.progressIntervalMilliseconds = progressMilliseconds
        }
        item.entry.apply(to: &fetch)
        fetch.addFormContentType()
        netrc?.authorize(&fetch)
        if files.timestamping, let existing, existing.isRegular {
            fetch.addHeaderField("if-modified-since: \(FileTime.httpDateText(existing.modified))")
        }
        if files.resumes, let existing, existing.isResumable { item.partial = existing }
        item.partial?.requestRemainder(&fetch)
        return fetch
    }
}
