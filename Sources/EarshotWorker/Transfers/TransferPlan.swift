internal import Curl
internal import EarshotHTTP
internal import EarshotWire

/// The interpretation of a JOB: the request for libcurl and the peer to connect to.
struct TransferPlan {
    let url: FetchURL
    let isHead: Bool
    /// Without addresses and timeouts, which are added when the transfer starts.
    let request: TransferRequest
    /// Header fields of the job, without those that the worker adds.
    let fields: HeaderFields
    /// Whether the request has an `accept-encoding` field, in which case the body is not decoded.
    let namesCodings: Bool
    /// The proxy; nil for a direct connection.
    let proxy: ProxyAddress?
    /// Host to resolve and connect to, either the server or the proxy: lower-case, without brackets.
    let host: String
    /// Port of that host.
    let hostPort: UInt16

    /// The request as the server sees it.
    var asked: HTTPRequest { HTTPRequest(method: isHead ? .head : .get, url: url, fields: fields) }

    /// Returns the plan of a job. A function, because an initializer would receive copies of all three arguments.
    ///
    /// - Throws: A refusal with the code of the first invalid field.
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

    /// Returns the request for the rest of a partial body; nil if the whole body must be requested.
    func request(toResume kept: PartialBody) -> TransferRequest? {
        guard let fields = ResumeRule().fields(toResume: kept, of: asked) else { return nil }
        var request = request
        request.headerFields += Self.list(fields)
        return request
    }

    private static func list(_ fields: HeaderFields) -> [TransferRequest.HeaderField] {
        fields.map { .init(name: String(decoding: $0.name, as: UTF8.self), value: Array($0.value)) }
    }

    /// The proxy named by the job, or otherwise by the environment.
    private static func proxy(
        _ said: String?, _ url: FetchURL, _ options: WorkerOptions
    ) throws(Refusal) -> ProxyAddress? {
        if said == Route.noProxy { return nil }
        guard let text = said ?? options.proxies.proxy(for: url) else { return nil }
        guard let proxy = ProxyAddress(text) else { throw Refusal(.malformedURL, "The proxy's URL is malformed.") }
        return proxy
    }
}
