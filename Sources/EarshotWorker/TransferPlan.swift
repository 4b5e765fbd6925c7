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

    /// Lower-case, without brackets.
    var host: String { String(url.host) }

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
        request.caFile = options.caFile
        request.version = options.speaksHTTP2 ? .http2OverTLS : .http1
        self.request = request
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
}
