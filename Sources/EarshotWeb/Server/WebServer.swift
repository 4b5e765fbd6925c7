package import EarshotClient
internal import EarshotCore
package import EarshotLoop
internal import EarshotWire

/// HTTP server for the state of a bus. It only reads: no request changes the bus.
public final class WebServer {
    /// Connections at once. A browser has at most six.
    private static let maximumPeers = 64
    /// Descriptors for everything else, and the number of connections of two browsers.
    private static let (reservedDescriptors, minimumPeers) = (16, 12)
    /// Part of them that may be streams of events.
    private static let streamShareDivisor = 4
    /// Time between two events of a stream.
    private static let eventInterval = Duration.seconds(1)
    /// Version of the form of `/status.json`. It grows when a member changes its meaning or disappears.
    static let statusSchemaVersion = 1

    private let loop: EventLoop
    private let rule: AccessRule
    private var tokenRule: TokenRule?
    private let source: StatusSource
    private var listener: WebListener?
    private let connectionLimit: Int
    private var peers: [Int32: WebPeer] = [:]
    private var eventTimer: TimerID?
    /// Address at which the server listens, as a URL or a path.
    public var address: String { listener?.address ?? "" }
    /// Error that ended the connection to the broker for good; nil while it runs.
    public var failure: (any Error)? { source.failure }

    /// Starts to listen, and connects to the broker of `folder` as soon as there is one.
    ///
    /// - Parameters:
    ///   - address: address to listen at.
    ///   - token: shared secret of the clients; nil if none is required.
    ///   - hosts: names of the server besides `localhost` and addresses.
    /// - Throws: `SystemError` if the address cannot be used, `DescriptorShortage`.
    package init(
        _ folder: RuntimeFolder, at address: ListenAddress, token: [UInt8]?, hosts: [String], loop: EventLoop
    ) throws {
        self.loop = loop
        let descriptors = try ResourceLimits.raiseDescriptorLimit(atLeast: Self.reservedDescriptors + Self.minimumPeers)
        connectionLimit = min(Self.maximumPeers, descriptors - Self.reservedDescriptors)
        rule = AccessRule(serverNames: Set(hosts.map { $0.lowercased() }))
        tokenRule = token.map { TokenRule(tokens: [$0]) }
        source = try StatusSource(folder, loop: loop)
        listener = try WebListener(address, loop: loop) { [unowned self] descriptor throws(SystemError) in
            try admit(descriptor)
        }
    }

    /// Closes all connections.
    public func close() {
        listener?.close()
        if let eventTimer { loop.cancelTimer(eventTimer) }
        for peer in Array(peers.values) { peer.close() }
    }

    // MARK: Connections

    private func admit(_ descriptor: Int32) throws(SystemError) {
        if peers.count >= connectionLimit {
            let idle = peers.values.filter { [.awaitingRequest, .closing, .awaitingPeerClose].contains($0.phase) }
            guard let oldest = idle.min(by: { $0.phaseChangeTime < $1.phaseChangeTime }) else {
                return UnixSocket.close(descriptor)
            }
            oldest.close()
        }
        let rules = WebPeer.Rules(
            rejectionResponse: { Self.rejectionResponse(status: $0) }, refusalBeforeBody: { Self.bodyRefusal($1) },
            onRequest: { [unowned self] peer, head, _ in answerRequest(peer, head: head) },
            onClose: { [unowned self] in peers[$0.descriptor] = nil })
        peers[descriptor] = try WebPeer(descriptor: descriptor, rules: rules, loop: loop)
    }

    // MARK: Resources

    private func answerRequest(_ peer: WebPeer, head: RequestHead) {
        guard head.method == "GET" || head.isHEADMethod else {
            return peer.respond(Self.rejectionResponse(status: 405))
        }
        guard head.target.hasPrefix("/") else { return peer.respond(Self.rejectionResponse(status: 400)) }
        // Probes of a service manager have no token. Their responses show only whether the bus works.
        let isProbe = head.path == "/healthz" || head.path == "/readyz"
        if let refusal = rule.refusal(of: head) { return peer.respond(Self.response(to: refusal)) }
        if !isProbe, let verdict = tokenRule?.checkToken(of: head, now: loop.now),
            let refusal = TokenRule.refusal(verdict, realm: "earshot-web")
        {
            return peer.respond(refusal)
        }
        switch head.path {
        case "/": peer.respond(Page.document)
        case "/page.css": peer.respond(Page.style)
        case "/icon.svg": peer.respond(Page.icon)
        case "/page.js": peer.respond(Page.script)
        case "/healthz": peer.respond(WebResponse(200, text: "ok"))
        case "/readyz":
            source.fetchState { [unowned self] in
                peer.respond(Self.readinessResponse(state: $0, absence: source.unreadinessReason))
            }
        case "/metrics":
            source.fetchState {
                peer.respond(WebResponse(200, MetricsText.mediaType, Array(MetricsText.text(of: $0).utf8)))
            }
        case "/status.json":
            source.fetchState { [unowned self] state in
                let document = Self.statusDocument(of: state, source.unreadinessReason)
                peer.respond(WebResponse(200, "application/json", document))
            }
        case "/why": answerRequestReason(peer, head: head)
        case "/events": beginStream(peer)
        default: peer.respond(WebResponse(404, text: "no such resource; see / for the page of this bus"))
        }
    }

    private func answerRequestReason(_ peer: WebPeer, head: RequestHead) {
        guard let handler = HandlerID(head.query["handler"] ?? ""), let request = RequestID(head.query["request"] ?? "")
        else {
            return peer.respond(WebResponse(400, text: "give ?handler=HANDLER&request=ID, each of visible ASCII"))
        }
        source.fetchRequestReason(handler: handler, request: request) { json in
            guard let json else { return peer.respond(WebResponse(503, text: "no broker answers")) }
            peer.respond(WebResponse(200, "application/json", json))
        }
    }

    private static func readinessResponse(state: BrokerState?, absence: BrokerState.Unreadiness) -> WebResponse {
        let reason = state.map(\.unreadiness) ?? absence
        let fault = state?.engineFault
        guard let reason else {
            let isDoorFailing =
                state?.arrayItems("failing").contains { $0.member("role")?.scalarText == "http" } ?? false
            let notes =
                (fault.map { ["without the engine of the cluster: \($0)"] } ?? []) + (state?.suspensionReasons ?? [])
                + (isDoorFailing ? ["without the HTTP door, which ends soon after each start"] : [])
            return WebResponse(200, text: (["ready"] + notes).joined(separator: ", "))
        }
        let detail = reason == .noEngine ? fault.map { " (\($0))" } ?? "" : ""
        return WebResponse(503, text: "not ready: \(reason.rawValue)\(detail)")
    }

    /// The document `/status.json`, which each event contains as well.
    ///
    /// - Parameter absence: Reason if there is no state.
    static func statusDocument(
        of state: BrokerState?, _ absence: BrokerState.Unreadiness, at time: String = CalendarTime.now()
    ) -> [UInt8] {
        let reason = state.map(\.unreadiness) ?? absence
        var json = JSONText()
        json.object { json in
            json.member("schema", statusSchemaVersion)
            json.member("time", time)
            json.member("ready", reason == nil)
            if let reason { json.member("reason", reason.rawValue) }
        }
        // The broker's object is inserted as received.
        return json.bytes.dropLast() + Array(",\"status\":".utf8) + (state?.statusJSON ?? Array("null".utf8))
            + [UInt8(ascii: "}")]
    }

    // MARK: Events

    private var streamingPeers: [WebPeer] { peers.values.filter { $0.phase == .streaming } }

    private func beginStream(_ peer: WebPeer) {
        guard streamingPeers.count < connectionLimit / Self.streamShareDivisor else {
            return peer.respond(WebResponse(503, text: "too many pages are open; close one"))
        }
        peer.beginStream()
        source.fetchState { [unowned self] state in
            peer.send(event: Self.statusEvent(state, absence: source.unreadinessReason))
        }
        guard eventTimer == nil else { return }
        eventTimer = loop.setTimer(after: Self.eventInterval) { [unowned self] in sendEvents() }
    }

    /// Sends the state to all streams. Without a stream the timer ends, and the broker gets no queries.
    private func sendEvents() {
        eventTimer = nil
        guard !streamingPeers.isEmpty else { return }
        source.fetchState { [unowned self] state in
            let event = Self.statusEvent(state, absence: source.unreadinessReason)
            for peer in streamingPeers { peer.send(event: event) }
        }
        eventTimer = loop.setTimer(after: Self.eventInterval) { [unowned self] in sendEvents() }
    }

    private static func statusEvent(_ state: BrokerState?, absence: BrokerState.Unreadiness) -> [UInt8] {
        // JSON of the broker has no line break, which would end the event.
        Array("data: ".utf8) + statusDocument(of: state, absence) + Array("\n\n".utf8)
    }

    // MARK: Rejections

    private static func response(to refusal: AccessRule.Refusal) -> WebResponse {
        switch refusal {
        case .unknownHost:
            return WebResponse(421, text: "unknown host name; use localhost, or start earshot-web with --host NAME")
        case .crossSite:
            return WebResponse(403, text: "requests from pages of other sites are rejected")
        }
    }

    private static func bodyRefusal(_ head: RequestHead) -> WebResponse {
        rejectionResponse(status: head.method == "GET" || head.isHEADMethod ? 413 : 405)
    }

    private static func rejectionResponse(status: Int) -> WebResponse {
        switch status {
        case 405:
            var response = WebResponse(405, text: "only GET and HEAD are supported")
            response.fields = [("Allow", "GET, HEAD")]
            return response
        case 413: return WebResponse(413, text: "requests have no body")
        case 431: return WebResponse(431, text: "the request head exceeds \(RequestHead.defaultMaximumBytes) bytes")
        case 417: return WebResponse(417, text: "only 100-continue can be expected")
        case 501: return WebResponse(501, text: "only the transfer coding chunked is supported")
        case 505: return WebResponse(505, text: "only HTTP/1.1 and HTTP/1.0 are supported")
        default: return WebResponse(400, text: "malformed request")
        }
    }
}
