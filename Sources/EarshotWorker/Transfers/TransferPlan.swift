internal import Curl
internal import EarshotHTTP
internal import EarshotWire

/// The interpretation of a JOB: the request for libcurl and the peer to connect to.
struct TransferPlan {
    let url: FetchURL
    let isHEADMethod: Bool
    /// Without addresses and timeouts, which are added when the transfer starts.
    let request: TransferRequest
    /// Header fields of the job, without those that the worker adds.
    let jobFields: HeaderFields
    /// Whether the body is stored with its content codings: the job requests that, or its fields name codings.
    let keepsContentCodings: Bool
    /// The proxy; nil for a direct connection.
    let proxy: ProxyAddress?
    /// Host to resolve and connect to, either the server or the proxy: lower-case, without brackets.
    let connectHost: String
    /// Port of that host.
    let connectPort: UInt16

    /// The request as the server sees it.
    var originRequest: HTTPRequest { HTTPRequest(method: isHEADMethod ? .head : .get, url: url, fields: jobFields) }

    /// Returns the plan of a job. A function, because an initializer would receive copies of all three arguments.
    ///
    /// - Throws: A refusal with the code of the first invalid field.
    static func make(
        job: Job, body: [UInt8]?, options: WorkerOptions, files: FileTable = FileTable()
    ) throws(Refusal) -> TransferPlan {
        let url = try parsedURL(job.url)
        guard url.isHTTP else { throw Refusal(.unsupportedScheme) }
        guard let port = url.port, port != 0 else { throw Refusal(.malformedURL) }
        guard let method = HTTPMethod(job.method), method.isAllowedInRequests else { throw Refusal(.unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) { fields = try HeaderFields(request: job.httpFields) } catch {
            throw Refusal(.badHeader, error.description)
        }
        let proxy = try proxy(named: job.route.proxy, for: url, options: options)
        let isSecure = url.scheme == "https"
        let certificates =
            isSecure || proxy?.kind == .https ? try Certificates(route: job.route, files: files) : Certificates()
        // A limited stream would delay the others of its connection.
        let mayUseHTTP2 = isSecure && job.allowsHTTP2 && proxy == nil && body == nil && job.maximumBytesPerSecond == nil
        return TransferPlan(
            url: url, isHEADMethod: method == .head,
            request: curlRequest(
                url: url, method: method, fields: fields, body: body, mayUseHTTP2: mayUseHTTP2, proxy: proxy,
                certificates: certificates, route: job.route, options: options),
            jobFields: fields, keepsContentCodings: !job.route.decodesBody || fields.contains("accept-encoding"),
            proxy: proxy, connectHost: proxy?.host ?? String(url.host), connectPort: proxy?.port ?? port)
    }

    /// Certificates in PEM of a job's route.
    private struct Certificates {
        var authorities: [UInt8]?
        var clientCertificate: [UInt8]?
        var clientKey: [UInt8]?

        init() {}

        init(route: Route, files: FileTable) throws(Refusal) {
            authorities = try route.caFile.map { path throws(Refusal) in
                try files.content(ofPath: path, forField: "ca-file")
            }
            clientCertificate = try route.clientCertificate.map { path throws(Refusal) in
                try files.content(ofPath: path, forField: "client-certificate")
            }
            clientKey = try route.clientKey.map { path throws(Refusal) in
                try files.content(ofPath: path, forField: "client-key")
            }
        }
    }

    /// Returns the request for libcurl.
    private static func curlRequest(
        url: FetchURL, method: HTTPMethod, fields: HeaderFields, body: [UInt8]?, mayUseHTTP2: Bool,
        proxy: ProxyAddress?, certificates: Certificates, route: Route, options: WorkerOptions
    ) -> TransferRequest {
        let usesHTTP2 = mayUseHTTP2 && (method == .get || method == .head) && Multi.speaksHTTP2
        // One expression: the compiler would copy a large variable at its end.
        return TransferRequest(
            url: url.description, method: transferMethod(method), body: body, headerFields: curlHeaderFields(fields),
            userAgent: options.userAgent,
            acceptEncoding: route.decodesBody ? ContentCoding.accepted(for: fields) : "identity",
            proxy: proxy?.url(for: url) ?? "", caFile: options.caFile, caCertificates: certificates.authorities,
            clientCertificate: certificates.clientCertificate, clientKey: certificates.clientKey,
            verifiesServer: route.verifiesServer, version: usesHTTP2 ? .http2OverTLS : .http1,
            ownsConnection: CredentialRule.authenticatesConnection(fields))
    }

    private static func transferMethod(_ method: HTTPMethod) -> TransferRequest.Method {
        switch method {
        case .get: .get
        case .head: .head
        default: .other(method.description, isRepeatable: method.isIdempotent)
        }
    }

    private static func parsedURL(_ url: String) throws(Refusal) -> FetchURL {
        do throws(FetchURL.ParseError) { return try FetchURL(url) } catch { throw Refusal(.malformedURL) }
    }

    /// Returns the request for the rest of a partial body; nil if the whole body must be requested.
    func requestResuming(_ kept: PartialBody) -> TransferRequest? {
        guard let fields = ResumeRule().rangeRequestFields(toResume: kept, of: originRequest) else { return nil }
        var request = request
        request.headerFields += Self.curlHeaderFields(fields)
        return request
    }

    private static func curlHeaderFields(_ fields: HeaderFields) -> [TransferRequest.HeaderField] {
        fields.map { .init(name: String(decoding: $0.name, as: UTF8.self), value: Array($0.value)) }
    }

    /// Returns the proxy that the job names, or otherwise the environment.
    private static func proxy(
        named header: String?, for url: FetchURL, options: WorkerOptions
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
