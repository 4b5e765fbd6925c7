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
    /// Whether the body is stored with its content codings: the job requests that, or its fields name codings.
    let keepsCodings: Bool
    /// The proxy; nil for a direct connection.
    let proxy: ProxyAddress?
    /// Host to resolve and connect to, either the server or the proxy: lower-case, without brackets.
    let host: String
    /// Port of that host.
    let hostPort: UInt16

    /// The request as the server sees it.
    var requested: HTTPRequest { HTTPRequest(method: isHead ? .head : .get, url: url, fields: fields) }

    /// Returns the plan of a job. A function, because an initializer would receive copies of all three arguments.
    ///
    /// - Throws: A refusal with the code of the first invalid field.
    static func make(
        _ job: Job, _ body: [UInt8]?, _ options: WorkerOptions, _ files: FileTable = FileTable()
    ) throws(Refusal) -> TransferPlan {
        let url = try parsed(job.url)
        guard url.isHTTP else { throw Refusal(.unsupportedScheme) }
        guard let port = url.port, port != 0 else { throw Refusal(.malformedURL) }
        guard let method = HTTPMethod(job.method), method.isAllowed else { throw Refusal(.unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) { fields = try HeaderFields(request: job.httpFields) } catch {
            throw Refusal(.badHeader, error.description)
        }
        let proxy = try proxy(job.route.proxy, url, options)
        let isSecure = url.scheme == "https"
        let certificates = isSecure || proxy?.kind == .https ? try Certificates(job.route, files) : Certificates()
        // A limited stream would delay the others of its connection.
        let mayUseHTTP2 = isSecure && job.allowsHTTP2 && proxy == nil && body == nil && job.rate == nil
        return TransferPlan(
            url: url, isHead: method == .head,
            request: request(
                url, method, fields, body, mayUseHTTP2: mayUseHTTP2, proxy: proxy, certificates,
                job.route, options),
            fields: fields, keepsCodings: !job.route.decodes || fields.contains("accept-encoding"), proxy: proxy,
            host: proxy?.host ?? String(url.host), hostPort: proxy?.port ?? port)
    }

    /// Certificates in PEM of a job's route.
    private struct Certificates {
        var authorities: [UInt8]?
        var client: [UInt8]?
        var clientKey: [UInt8]?

        init() {}

        init(_ route: Route, _ files: FileTable) throws(Refusal) {
            authorities = try route.caFile.map { path throws(Refusal) in try files.content(path, "ca-file") }
            client = try route.clientCertificate.map { path throws(Refusal) in
                try files.content(path, "client-certificate")
            }
            clientKey = try route.clientKey.map { path throws(Refusal) in try files.content(path, "client-key") }
        }
    }

    /// Returns the request for libcurl.
    private static func request(
        _ url: FetchURL, _ method: HTTPMethod, _ fields: HeaderFields, _ body: [UInt8]?, mayUseHTTP2: Bool,
        proxy: ProxyAddress?, _ certificates: Certificates, _ route: Route, _ options: WorkerOptions
    ) -> TransferRequest {
        let usesHTTP2 = mayUseHTTP2 && (method == .get || method == .head) && Multi.speaksHTTP2
        // One expression: the compiler would copy a large variable at its end.
        return TransferRequest(
            url: url.description, method: transferMethod(method), body: body, headerFields: list(fields),
            userAgent: options.userAgent,
            acceptEncoding: route.decodes ? ContentCoding.accepted(for: fields) : "identity",
            proxy: proxy?.url(for: url) ?? "",
            caFile: options.caFile, caCertificates: certificates.authorities, clientCertificate: certificates.client,
            clientKey: certificates.clientKey, verifiesServer: route.verifiesServer,
            version: usesHTTP2 ? .http2OverTLS : .http1,
            ownsConnection: CredentialRule.authenticatesConnection(fields))
    }

    private static func transferMethod(_ method: HTTPMethod) -> TransferRequest.Method {
        switch method {
        case .get: .get
        case .head: .head
        default: .other(method.description, isRepeatable: method.isIdempotent)
        }
    }

    private static func parsed(_ url: String) throws(Refusal) -> FetchURL {
        do throws(FetchURL.ParseError) { return try FetchURL(url) } catch { throw Refusal(.malformedURL) }
    }

    /// Returns the request for the rest of a partial body; nil if the whole body must be requested.
    func request(toResume kept: PartialBody) -> TransferRequest? {
        guard let fields = ResumeRule().fields(toResume: kept, of: requested) else { return nil }
        var request = request
        request.headerFields += Self.list(fields)
        return request
    }

    private static func list(_ fields: HeaderFields) -> [TransferRequest.HeaderField] {
        fields.map { .init(name: String(decoding: $0.name, as: UTF8.self), value: Array($0.value)) }
    }

    /// The proxy named by the job, or otherwise by the environment.
    private static func proxy(
        _ header: String?, _ url: FetchURL, _ options: WorkerOptions
    ) throws(Refusal) -> ProxyAddress? {
        if header == Route.noProxy { return nil }
        do throws(ProxyAddress.ParseError) {
            if let header { return try ProxyAddress(header) }
            return try options.proxies.proxy(for: url)
        } catch {
            throw Refusal(.malformedURL, error.description)
        }
    }
}
