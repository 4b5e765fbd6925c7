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

    /// Lower-case, without brackets.
    var host: String { String(url.host) }

    init(_ job: Job, _ options: WorkerOptions) throws(Refusal) {
        do throws(FetchURL.ParseError) { url = try FetchURL(job.url) } catch { throw Refusal(.malformedURL) }
        guard url.isHTTP else { throw Refusal(.unsupportedScheme) }
        guard let port = url.port, port != 0 else { throw Refusal(.malformedURL) }
        self.port = port
        var request = TransferRequest(url: url.description)
        switch job.method {
        case "GET": request.method = .get
        case "HEAD": request.method = .head
        default: throw Refusal(.unsupportedMethod)
        }
        isHead = request.method == .head
        let fields: HeaderFields
        do throws(HeaderFieldError) { fields = try HeaderFields(request: job.httpFields) } catch {
            throw Refusal(.badHeader)
        }
        request.headerFields = fields.map { field in
            .init(name: String(decoding: field.name, as: UTF8.self), value: Array(field.value))
        }
        request.userAgent = options.userAgent
        request.caFile = options.caFile
        request.version = options.speaksHTTP2 ? .http2OverTLS : .http1
        self.request = request
    }
}
