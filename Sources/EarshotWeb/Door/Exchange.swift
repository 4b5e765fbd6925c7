internal import EarshotHTTP
internal import EarshotWire

/// One request of an HTTP client and its response.
///
/// ```
/// awaitingResponse ──growing body or terminal──→ sendingResponse ──all bytes──→ ended
///    └──────────failure, whole response───────────────────────────────────────────┘
/// ```
///
/// The door sends the body from its file, so a slow client costs no memory and delays no other client. A door that may
/// not open the file sends a READ for the next part when the client has received the last one. The terminal is
/// acknowledged when the client has the response, which frees the file.
final class Exchange {
    private enum Phase: Equatable {
        case awaitingResponse
        case sendingResponse
        case ended
    }

    /// Size of a body that the kernel usually takes at once.
    private static let bodyBytesWithoutReservation = 64 << 10

    let id: RequestID
    private let url: String
    private let request: RequestHead
    private let peer: WebPeer
    private let response: ProxyResponse
    private let isRewritten: Bool
    private let handler: HandlerID
    /// Sends a READ; nil in a door that opens files.
    private let sendBodyRead: ((BodyRead) -> Void)?
    /// Counts bytes of a body in memory until the client has them; false beyond the bound.
    var reserveBodyBytes: (Int) -> Bool = { _ in true }
    /// Whether a READ has no answer, and whether the terminal's body is read so.
    private var (isReading, isPulled) = (false, false)
    private var phase = Phase.awaitingResponse
    private var framing = ProxyResponse.Framing.none
    private var keepsAlive = false
    private var file: OpenFile?
    private var generation: Generation?
    /// Bytes of the body that may be read, and those that were queued.
    private var (available, sent) = (0, 0)
    /// Whether no further bytes come.
    private var isBodyComplete = false
    /// Number of the terminal; nil before it.
    private var terminalSequence: UInt64?
    /// Whether a session of the API keeps the terminal until its client acknowledges it.
    private var isTerminalKept = false

    init(
        request: RequestHead, fetch: Fetch, from peer: WebPeer, response: ProxyResponse,
        read: ((BodyRead) -> Void)?
    ) {
        self.request = request
        self.sendBodyRead = read
        handler = fetch.handler
        (id, url) = (fetch.request, fetch.url)
        self.peer = peer
        self.response = response
        isRewritten = response.apiFields == nil && fetch.options.route.decodesBody
    }

    /// An exchange whose terminal is there, and stays.
    convenience init(
        request: RequestHead, terminal kept: Terminal, from peer: WebPeer, response: ProxyResponse,
        read: ((BodyRead) -> Void)?
    ) {
        let fetch = Fetch(handler: kept.handler, request: kept.request, url: kept.url ?? "")
        self.init(request: request, fetch: fetch, from: peer, response: response, read: read)
        isTerminalKept = true
    }

    /// Number of the terminal to acknowledge, once the client has the response.
    var acknowledgeableSequence: UInt64? {
        phase == .ended && peer.isDrained && !isTerminalKept ? terminalSequence : nil
    }
    /// Whether nothing that the broker reports matters.
    var isOver: Bool { phase == .ended || peer.phase == .closed }
    var hasBody: Bool { request.bodyLength != .none }

    func receivedProgress(_ progress: Progress) {
        guard progress.generation != nil, let status = progress.status, !request.isHEADMethod, !isBodyComplete else {
            return
        }
        if phase == .awaitingResponse {
            if sendBodyRead == nil {
                guard let path = progress.filePath, let file = OpenFile(path) else { return }
                self.file = file
            }
            generation = progress.generation
            beginResponse(
                status: status, fields: HeaderFields(lines: progress.httpFields), url: url, length: progress.totalBytes,
                source: nil)
        } else if generation != progress.generation {
            return abort()
        }
        available = progress.receivedBytes
        queueAvailableBody()
    }

    func receivedTerminal(_ terminal: Terminal, body: [UInt8]) {
        terminalSequence = terminal.sequence > 0 ? terminal.sequence : nil
        switch terminal.outcome {
        case .result(let status, let result): concludeWithTerminal(status: status, result: result, body: body)
        case .failed(let failure):
            // The page of an error is the body of a kept result.
            if isTerminalKept, let status = failure.status, let page = failure.errorPageResponse {
                return concludeWithTerminal(status: status, result: page, body: body)
            }
            failWithResponse(ProxyResponse.failureResponse(failure))
        }
    }

    /// Ends the exchange without a complete response.
    func failWithResponse(_ own: WebResponse) {
        guard phase == .awaitingResponse else { return abort() }
        phase = .ended
        peer.respond(response.busResponse(own))
    }

    func receivedBodyData(_ data: BodyData, bytes: [UInt8]) {
        guard phase == .sendingResponse, !isOver, isReading, data.body == bodyReference, data.offset == sent else {
            return
        }
        isReading = false
        guard data.errorCode == nil, !bytes.isEmpty else { return abort() }
        sendBody(bytes[...])
        peer.flush()
    }

    /// The body that READ names.
    private var bodyReference: BodyReference { terminalSequence.map { .terminal($0) } ?? .request(handler, id) }

    /// Continues after the client has read all that was queued.
    func outputDrained() { if phase == .sendingResponse { queueAvailableBody() } }

    private func concludeWithTerminal(status: Int, result: Terminal.Response, body: [UInt8]) {
        var fields = HeaderFields(lines: result.httpFields)
        var (result, body) = (result, body)
        if isRewritten {
            fields.removeAll { field in PackageIndex.invalidatedFields.contains { field.isNamed($0) } }
            // A body that is read in parts leaves as it is.
            if !result.isPulled, PackageIndex.isIndex(mediaType: fields.firstValue(named: "content-type") ?? ""),
                let text = result.bodyFilePath.map({ OpenFile($0)?.bytes(atMost: PackageIndex.maximumBytes) }) ?? body,
                let moved = PackageIndex.rewritten(text, below: "http://\(request.host)/")
            {
                body = moved
                (result.bodyFilePath, result.bodyByteCount) = (nil, body.count)
            }
        }
        if file == nil, result.bodyFilePath == nil, body.count > Self.bodyBytesWithoutReservation,
            !reserveBodyBytes(body.count)
        {
            return failWithResponse(ProxyResponse.memoryFull(body.count))
        }
        if phase == .awaitingResponse {
            if let path = result.bodyFilePath {
                guard let file = OpenFile(path) else { return failWithResponse(ProxyResponse.brokerUnavailable) }
                self.file = file
            }
            beginResponse(
                status: status, fields: fields, url: result.url, length: result.bodyByteCount, source: result.source)
        } else {
            let isSame = generation == result.generation && available <= result.bodyByteCount
            guard isSame,
                framing == .chunked || framing == .untilConnectionCloses || framing == .length(result.bodyByteCount)
            else {
                return abort()
            }
        }
        isBodyComplete = true
        // The terminal ends a READ of the growing body.
        (isReading, isPulled) = (false, result.isPulled)
        available = framing == .none ? 0 : result.bodyByteCount
        if file == nil, !isPulled, framing != .none {
            guard body.count == available, sent <= body.count else { return abort() }
            sendBody(body.dropFirst(sent))
        }
        queueAvailableBody()
    }

    private func beginResponse(status: Int, fields: HeaderFields, url: String, length: Int?, source: Terminal.Source?) {
        let head = response.responseHead(
            status: status, fields: fields, of: url, length: length, source: source, to: request)
        (framing, keepsAlive) = (head.framing, head.keepsAlive)
        peer.write(head.bytes)
        phase = .sendingResponse
    }

    private func sendBody(_ bytes: ArraySlice<UInt8>) {
        if !bytes.isEmpty { sendChunk(byteCount: bytes.count) { peer.write(Array(bytes)) } }
    }

    private func sendChunk(byteCount: Int, write: () -> Void) {
        if framing == .chunked { peer.write(Array("\(String(byteCount, radix: 16))\r\n".utf8)) }
        write()
        if framing == .chunked { peer.write([13, 10]) }
        sent += byteCount
    }

    /// Queues all available bytes of the file, unless earlier output is unsent.
    private func queueAvailableBody() {
        guard phase == .sendingResponse else { return }
        if sent < available {
            // The head is written together with the first bytes.
            guard sent == 0 || peer.isDrained else { return }
            let (start, count) = (sent, available - sent)
            if let file {
                sendChunk(byteCount: count) { peer.write(file, from: start, count: count) }
            } else if let sendBodyRead {
                guard !isReading else { return }
                isReading = true
                let length = min(count, Self.bodyBytesWithoutReservation)
                let read = BodyRead(
                    bodyReference, offset: start, maximumBytes: length,
                    generation: terminalSequence == nil ? generation : nil)
                return sendBodyRead(read)
            }
        }
        guard isBodyComplete else { return peer.flush() }
        if framing == .chunked { peer.write(Array("0\r\n\r\n".utf8)) }
        phase = .ended
        peer.endResponse(keepsAlive: keepsAlive)
    }

    private func abort() {
        phase = .ended
        peer.close(resets: true)
    }
}
