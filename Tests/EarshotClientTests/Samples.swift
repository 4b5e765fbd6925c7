import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

let hello = Hello(client: "test")
let handler = HandlerID("gallery/1")!

func key(_ request: String) -> RequestKey { RequestKey(handler, RequestID(request)!) }

func requestRemoved(_ request: String) -> BrokerMessage {
    .requestRemoved(handler, key(request).request, wasOpen: true)
}

func pattern(_ text: String) -> HandlerPattern { HandlerPattern(text)! }

func fetch(_ request: String) -> Fetch {
    Fetch(handler: handler, request: RequestID(request)!, url: "http://127.0.0.1/\(request)")
}

func welcome(_ instance: UInt64, isPulling: Bool = false) -> BrokerMessage {
    var welcome = Welcome(broker: BrokerInstance(rawValue: instance), window: 256)
    welcome.isPulling = isPulling
    return .welcome(welcome)
}

func result(_ request: String, sequence: UInt64, file: String? = nil) -> Terminal {
    var response = Terminal.Response(url: "http://127.0.0.1/\(request)")
    response.file = file
    return Terminal(
        handler: handler, request: RequestID(request)!, sequence: sequence,
        outcome: .result(status: 200, response))
}

func progress(_ request: String) -> Progress {
    Progress(handler: handler, request: RequestID(request)!, received: 1, total: 2)
}

/// Returns a core after WELCOME.
func ready() -> ClientCore {
    var core = ClientCore(hello: hello)
    _ = core.linkOpened()
    _ = core.received(welcome(1))
    return core
}

func reconnect(_ core: inout ClientCore) {
    _ = core.linkLost()
    _ = core.linkOpened()
    _ = core.received(welcome(2))
}

func sent(_ actions: [ClientAction]) -> [ClientMessage] {
    actions.compactMap { if case .send(let message) = $0 { message } else { nil } }
}

func delivery(_ actions: [ClientAction]) -> Delivery? {
    guard case .deliver(let delivery)? = actions.first else { return nil }
    return delivery
}

func deliveries(_ actions: [ClientAction]) -> [Terminal] {
    actions.compactMap { if case .deliver(let delivery) = $0 { delivery.terminal } else { nil } }
}

let token = SessionToken(high: 1, low: 2)

/// Returns the WELCOME of a broker that grants a lease.
///
/// `heard` is the received count of a resumed session, `replies` the reply count of a broker that keeps replies.
func welcome(_ instance: UInt64, heard: UInt64?, replies: UInt64? = nil) -> BrokerMessage {
    var welcome = Welcome(broker: BrokerInstance(rawValue: instance), window: 256)
    welcome.leaseMilliseconds = 5_000
    welcome.token = token
    welcome.heard = heard
    welcome.replies = replies
    return .welcome(welcome)
}

extension ClientCore {
    mutating func fetch(_ fetch: Fetch) -> [ClientAction] { self.fetch(Shared(fetch)) }
}

extension EventLoop {
    /// Returns the passes in 100 ms of a loop without work. The first ones process events of a connection's start, on a busy
    /// machine over a longer time.
    func idlePasses() throws -> Int {
        var passes = 0
        let hook = addHook {
            passes += 1
            return .untilEvent
        }
        defer { removeHook(hook) }
        for _ in 0..<20 {
            passes = 0
            try run(for: .milliseconds(100)) { false }
            if passes <= 2 { break }
        }
        return passes
    }
}
