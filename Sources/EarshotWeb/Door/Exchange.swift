internal import EarshotHTTP
internal import EarshotWire

/// One request of an HTTP client and its response.
///
/// ```
/// waiting ──growing body or terminal──→ sending ──all bytes──→ ended
///    └──────────failure, whole response──────────────────────────┘
/// ```
///
/// The door sends the body from its file, so a slow client costs no memory and delays no other client. A door that may
/// not open the file sends a READ for the next part when the client has received the last one. The terminal is
/// acknowledged when the client has the response, which frees the file.
final class Exchange {
    private enum Phase: Equatable {
        case waiting
        case sending
        case ended
    }

    /// Size of a body that the kernel usually takes at once.
    private static let uncountedBytes = 64 << 10

    let id: RequestID
    private let url: String
    private let request: RequestHead
    private let peer: WebPeer
    private let response: ProxyResponse
    private let isRewritten: Bool
    private let handler: HandlerID
    /// Sends a READ; nil in a door that opens files.
    private let read: ((BodyRead) -> Void)?
    /// Counts bytes of a body in memory until the client has them; false beyond the bound.
    var reserve: (Int) -> Bool = { _ in true }
    /// Whether a READ has no answer, and whether the terminal's body is read so.
    private var (isReading, isPulled) = (false, false)
    private var phase = Phase.waiting
    private var framing = ProxyResponse.Framing.none
    private var keepsAlive = false
    private var file: OpenFile?
    private var generation: Generation?
    /// Bytes of the body that may be read, and those that were queued.
    private var (available, sent) = (0, 0)
    /// Whether no further bytes come.
    private var isComplete = false
    /// Number of the terminal; nil before it.
    private var sequence: UInt64?
    /// Whether a session of the API keeps the terminal until its client acknowledges it.
    private var isKept = false

    init(
        _ request: RequestHead, _ fetch: Fetch, from peer: WebPeer, _ response: ProxyResponse,
        read: ((BodyRead) -> Void)?
    ) {
        self.request = request
        self.read = read
        handler = fetch.handler
        (id, url) = (fetch.request, fetch.url)
        self.peer = peer
        self.response = response
        isRewritten = response.apiFields == nil && fetch.options.route.decodes
    }

    /// An exchange whose terminal is there, and stays.
    convenience init(
        _ request: RequestHead, _ kept: Terminal, from peer: WebPeer, _ response: ProxyResponse,
        read: ((BodyRead) -> Void)?
    ) {
        let fetch = Fetch(handler: kept.handler, request: kept.request, url: kept.url ?? "")
        self.init(request, fetch, from: peer, response, read: read)
        isKept = true
    }

    /// Number of the terminal to acknowledge, once the client has the response.
    var finished: UInt64? { phase == .ended && peer.isDrained && !isKept ? sequence : nil }
    /// Whether nothing that the broker reports matters.
    var isOver: Bool { phase == .ended || peer.phase == .closed }
    var hasBody: Bool { request.bodyLength != .none }

    func received(_ progress: Progress) {
        guard progress.generation != nil, let status = progress.status, !request.isHead, !isComplete else { return }
        if phase == .waiting {
            if read == nil {
                guard let path = progress.file, let file = OpenFile(path) else { return }
                self.file = file
            }
            generation = progress.generation
            begin(status, HeaderFields(lines: progress.httpFields), url: url, length: progress.total, source: nil)
        } else if generation != progress.generation {
            return abort()
        }
        available = progress.received
        pump()
    }

    func received(_ terminal: Terminal, body: [UInt8]) {
        sequence = terminal.sequence > 0 ? terminal.sequence : nil
        switch terminal.outcome {
        case .result(let status, let result): conclude(status, result, body)
        case .failed(let failure):
            // The page of an error is the body of a kept result.
            if isKept, let status = failure.status, let page = failure.response { return conclude(status, page, body) }
            fail(ProxyResponse.failure(failure))
        }
    }

    /// Ends the exchange without a complete response.
    func fail(_ own: WebResponse) {
        guard phase == .waiting else { return abort() }
        phase = .ended
        peer.respond(response.busResponse(own))
    }

    func received(_ data: BodyData, _ bytes: [UInt8]) {
        guard phase == .sending, !isOver, isReading, data.body == reference, data.offset == sent else { return }
        isReading = false
        guard data.error == nil, !bytes.isEmpty else { return abort() }
        send(bytes[...])
        peer.flush()
    }

    /// The body that READ names.
    private var reference: BodyReference { sequence.map { .terminal($0) } ?? .request(handler, id) }

    /// Continues after the client has read all that was queued.
    func outputDrained() { if phase == .sending { pump() } }

    private func conclude(_ status: Int, _ result: Terminal.Response, _ body: [UInt8]) {
        var fields = HeaderFields(lines: result.httpFields)
        var (result, body) = (result, body)
        if isRewritten {
            fields.removeAll { field in PackageIndex.fields.contains { field.isNamed($0) } }
            // A body that is read in parts leaves as it is.
            if !result.isPulled, PackageIndex.isIndex(type: fields.first("content-type") ?? ""),
                let text = result.file.map({ OpenFile($0)?.bytes(atMost: PackageIndex.mostBytes) }) ?? body,
                let moved = PackageIndex.rewritten(text, below: "http://\(request.host)/")
            {
                body = moved
                (result.file, result.length) = (nil, body.count)
            }
        }
        if file == nil, result.file == nil, body.count > Self.uncountedBytes, !reserve(body.count) {
            return fail(ProxyResponse.memoryFull(body.count))
        }
        if phase == .waiting {
            if let path = result.file {
                guard let file = OpenFile(path) else { return fail(ProxyResponse.brokerUnavailable) }
                self.file = file
            }
            begin(status, fields, url: result.url, length: result.length, source: result.source)
        } else {
            let isSame = generation == result.generation && available <= result.length
            guard isSame, framing == .chunked || framing == .close || framing == .length(result.length) else {
                return abort()
            }
        }
        isComplete = true
        // The terminal ends a READ of the growing body.
        (isReading, isPulled) = (false, result.isPulled)
        available = framing == .none ? 0 : result.length
        if file == nil, !isPulled, framing != .none {
            guard body.count == available, sent <= body.count else { return abort() }
            send(body.dropFirst(sent))
        }
        pump()
    }

    private func begin(
        _ status: Int, _ fields: HeaderFields, url: String, length: Int?, source: Terminal.Source?
    ) {
        let head = response.head(status, fields, of: url, length: length, source: source, to: request)
        (framing, keepsAlive) = (head.framing, head.keepsAlive)
        peer.write(head.bytes)
        phase = .sending
    }

    private func send(_ bytes: ArraySlice<UInt8>) {
        if !bytes.isEmpty { send(count: bytes.count) { peer.write(Array(bytes)) } }
    }

    private func send(count: Int, _ write: () -> Void) {
        if framing == .chunked { peer.write(Array("\(String(count, radix: 16))\r\n".utf8)) }
        write()
        if framing == .chunked { peer.write([13, 10]) }
        sent += count
    }

    /// Queues all bytes of the file that are there, unless others wait.
    private func pump() {
        guard phase == .sending else { return }
        if sent < available {
            // The head is written together with the first bytes.
            guard sent == 0 || peer.isDrained else { return }
            let (start, count) = (sent, available - sent)
            if let file {
                send(count: count) { peer.write(file, from: start, count: count) }
            } else if let read {
                guard !isReading else { return }
                isReading = true
                let length = min(count, Self.uncountedBytes)
                return read(
                    BodyRead(reference, offset: start, length: length, generation: sequence == nil ? generation : nil))
            }
        }
        guard isComplete else { return peer.flush() }
        if framing == .chunked { peer.write(Array("0\r\n\r\n".utf8)) }
        phase = .ended
        peer.endResponse(keepsAlive: keepsAlive)
    }

    private func abort() {
        phase = .ended
        peer.close(resets: true)
    }
}
