internal import Curl
internal import EarshotHTTP
internal import EarshotWire

/// A JOB understood: what is asked of libcurl, and of whom.
struct TransferPlan {
    let url: FetchURL
    let port: UInt16
    let isHead: Bool
    /// Without addresses and times, which are known when the transfer starts.
    let request: TransferRequest
    /// What is asked of the server, but for what the worker adds.
    let asked: HTTPRequest

    /// The proxy that it goes through; nil for none.
    let proxy: ProxyAddress?

    /// Whose address is needed, and where it is connected to: lower-case, without brackets.
    var host: String { proxy?.host ?? String(url.host) }
    /// The port there.
    var hostPort: UInt16 { proxy?.port ?? port }

    init(_ job: Job, _ body: [UInt8]?, _ options: WorkerOptions) throws(Refusal) {
        do throws(FetchURL.ParseError) { url = try FetchURL(job.url) } catch { throw Refusal(.malformedURL) }
        guard url.isHTTP else { throw Refusal(.unsupportedScheme) }
        guard let port = url.port, port != 0 else { throw Refusal(.malformedURL) }
        self.port = port
        var request = TransferRequest(url: url.description)
        guard let method = HTTPMethod(job.method), method.isAllowed else { throw Refusal(.unsupportedMethod) }
        isHead = method == .head
        switch method {
        case .get: request.method = .get
        case .head: request.method = .head
        default: request.method = .other(method.description, isRepeatable: method.isIdempotent)
        }
        request.body = body
        let fields: HeaderFields
        do throws(HeaderFieldError) { fields = try HeaderFields(request: job.httpFields) } catch {
            throw Refusal(.badHeader)
        }
        request.headerFields = Self.list(fields)
        asked = HTTPRequest(method: isHead ? .head : .get, url: url, fields: fields)
        request.userAgent = options.userAgent
        proxy = try Self.proxy(job.route.proxy, url, options)
        request.proxy = proxy?.url ?? ""
        request.caFile = job.route.caFile ?? options.caFile
        request.clientCertificate = job.route.clientCertificate
        request.clientKey = job.route.clientKey
        self.request = request
    }

    /// The request for what is missing of a body; nil if the whole has to be asked for.
    func request(toResume kept: PartialBody) -> TransferRequest? {
        guard let fields = ResumeRule().fields(toResume: kept, of: asked) else { return nil }
        var request = request
        request.headerFields += Self.list(fields)
        // A server that is asked for no coding, and takes one for its answer all the same, is understood as ever.
        request.alwaysDecodes = true
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
