internal import Curl
internal import EarshotHTTP
internal import EarshotWire

/// A JOB understood: what is asked of libcurl, and of whom.
struct TransferPlan {
    let url: FetchURL
    let isHead: Bool
    /// Without addresses and times, which are known when the transfer starts.
    let request: TransferRequest
    /// The fields sent to the server, but for what the worker adds.
    let fields: HeaderFields
    /// Whether the request has an `accept-encoding` of its own: then the body is passed on as it is sent.
    let namesCodings: Bool
    /// The proxy that it goes through; nil for none.
    let proxy: ProxyAddress?
    /// Whose address is needed, and where it is connected to: lower-case, without brackets.
    let host: String
    /// The port there.
    let hostPort: UInt16

    /// What is asked of the server.
    var asked: HTTPRequest { HTTPRequest(method: isHead ? .head : .get, url: url, fields: fields) }

    /// Understands a job. An initializer would be given copies of all three.
    static func make(_ job: Job, _ body: [UInt8]?, _ options: WorkerOptions) throws(Refusal) -> TransferPlan {
        let url = try parsed(job.url)
        guard url.isHTTP else { throw Refusal(.unsupportedScheme) }
        guard let port = url.port, port != 0 else { throw Refusal(.malformedURL) }
        guard let method = HTTPMethod(job.method), method.isAllowed else { throw Refusal(.unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) { fields = try HeaderFields(request: job.httpFields) } catch {
            throw Refusal(.badHeader)
        }
        let proxy = try proxy(job.route.proxy, url, options)
        var request = TransferRequest(url: url.description)
        switch method {
        case .get: break
        case .head: request.method = .head
        default: request.method = .other(method.description, isRepeatable: method.isIdempotent)
        }
        request.body = body
        request.headerFields = list(fields)
        request.userAgent = options.userAgent
        request.acceptEncoding = ContentCoding.accepted
        if let proxy { request.proxy = proxy.url }
        let isSecure = url.scheme == "https"
        if isSecure, job.allowsHTTP2, proxy == nil, body == nil, method == .get || method == .head, Multi.speaksHTTP2 {
            request.version = .http2OverTLS
        }
        request.caFile = options.caFile
        if isSecure || proxy?.kind == .https {
            request.caCertificates = try job.route.caFile.map { path throws(Refusal) in
                try CertificateFile.read(path, "ca-file")
            }
            request.clientCertificate = try job.route.clientCertificate.map { path throws(Refusal) in
                try CertificateFile.read(path, "client-certificate")
            }
            request.clientKey = try job.route.clientKey.map { path throws(Refusal) in
                try CertificateFile.read(path, "client-key")
            }
        }
        return TransferPlan(
            url: url, isHead: method == .head, request: request, fields: fields,
            namesCodings: fields.contains("accept-encoding"), proxy: proxy, host: proxy?.host ?? String(url.host),
            hostPort: proxy?.port ?? port)
    }

    private static func parsed(_ url: String) throws(Refusal) -> FetchURL {
        do throws(FetchURL.ParseError) { return try FetchURL(url) } catch { throw Refusal(.malformedURL) }
    }

    /// The request for what is missing of a body; nil if the whole has to be asked for.
    func request(toResume kept: PartialBody) -> TransferRequest? {
        guard let fields = ResumeRule().fields(toResume: kept, of: asked) else { return nil }
        var request = request
        request.headerFields += Self.list(fields)
        return request
    }

    private static func list(_ fields: HeaderFields) -> [TransferRequest.HeaderField] {
        fields.map { .init(name: String(decoding: $0.name, as: UTF8.self), value: Array($0.value)) }
    }

    /// The proxy that a job says, or else the environment.
    private static func proxy(
        _ said: String?, _ url: FetchURL, _ options: WorkerOptions
    ) throws(Refusal) -> ProxyAddress? {
        if said == Route.noProxy { return nil }
        guard let text = said ?? options.proxies.proxy(for: url) else { return nil }
        guard let proxy = ProxyAddress(text) else { throw Refusal(.malformedURL, "The proxy's URL is malformed.") }
        return proxy
    }
}
