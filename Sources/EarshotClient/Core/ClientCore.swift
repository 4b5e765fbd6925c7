internal import DequeModule
internal import EarshotWire

/// What a client wants, and how far it has got: decides what to say over whatever connection there is.
///
/// All that is wanted outlives connections and brokers. After each WELCOME everything is said again: first the
/// subscriptions, then what awaits an answer, then each open request; asking twice for one request is one request. So
/// each terminal is delivered once. With a lease the WELCOME may tell that the broker has kept the session: then only
/// what it has not heard is said again, terminals that come a second time are known by their numbers, and the broker
/// sends the replies again that this client did not receive.
struct ClientCore {
    /// `apart -> greeting -> ready`, and from both back to `apart`.
    enum Phase: Equatable {
        /// No connection.
        case apart
        /// HELLO was said, WELCOME is awaited.
        case greeting
        /// What is wanted is said at once.
        case ready
    }

    /// What was said and has its answer to come, in the order it was said.
    enum Awaited: Equatable {
        case cancel(RequestKey)
        /// The removal of a request whose ID is used again: what comes before its answer is of the old request.
        case replacement(RequestKey)
        case remove(HandlerPattern)
        case query(Query, QueryPage)
        case setting(SettingWords)
        /// A request that is not ours to hear of; the answer to a later query tells that it was taken in.
        case submission(Fetch)

        /// Whether it is this question, about any page: answers come in order.
        func asks(_ query: Query) -> Bool {
            if case .query(query, _) = self { true } else { false }
        }
    }

    /// One of those.
    struct Question {
        let what: Awaited
        /// With which message of the session it was, or will be, said.
        var number: UInt64
        /// Whether it was said, in whatever session.
        var wasSaid: Bool
    }

    /// What is said and not answered, but that must not be lost.
    struct Notice {
        let message: ClientMessage
        var number: UInt64
    }

    /// Notices kept at most; a session of which more may be lost is not gone on with.
    static let mostNotices = 1_000
    /// How often the connection that is gone may still stand in the broker's eyes before another session is begun.
    static let mostRefusals = 100

    let hello: Hello
    /// Whether the consumer finishes every delivery, not only those whose bodies are files.
    let finishesNone: Bool
    /// The shell's clock, which it sets before each call that may ask for something.
    var milliseconds = 0
    var phase = Phase.apart
    var isDraining = false
    var requests: [RequestKey: OpenRequest] = [:]
    var lastOrder: UInt64 = 0
    /// Requests that others have replaced, whose terminals may still come: until the broker has heard the message of
    /// that number.
    var replaced: [RequestKey: UInt64] = [:]
    /// Requests with `waitsFor`, so that an acknowledgement need not look at all.
    var waiting: Set<RequestKey> = []
    var subscriptions: [HandlerPattern] = []
    var awaited = Deque<Question>()
    /// Submissions over connections that are gone, which must not be done twice.
    var lostSubmissions: [RequestKey] = []
    var ledger = DeliveryLedger()
    /// Counts sessions, so that what is finished late is not taken for one of the next.
    var link: UInt64 = 0
    /// What the next connection goes on with; nil if there is nothing to go on with.
    var token: SessionToken?
    /// The folder of bodies that are files, as the last broker told.
    var spool: String?
    /// Messages said in the session, those that wait for a connection included.
    var said: UInt64 = 0
    /// Replies received in the session.
    var replies: UInt64 = 0
    /// SUBSCRIBE, UNSUBSCRIBE and PRIORITY that the broker may not have heard, oldest first; kept while there is a
    /// lease.
    var notices = Deque<Notice>()
    /// Times in a row that the session's connection was still standing.
    var refusals = 0

    init(hello: Hello, finishesNone: Bool = false) {
        self.hello = hello
        self.finishesNone = finishesNone
    }

    // MARK: The connection

    /// A connection was begun; what is sent waits until it stands.
    mutating func linkOpened() -> [ClientAction] {
        phase = .greeting
        var hello = hello
        hello.token = token
        if token != nil { hello.replies = replies }
        return [.send(.hello(hello))]
    }

    /// The connection is gone, and with it all that was under way; without a lease the session is.
    mutating func linkLost() -> [ClientAction] {
        let wasApart = phase == .apart
        phase = .apart
        isDraining = false
        if token == nil { endSession() }
        return wasApart ? [] : [.report(.state(.apart))]
    }

    /// The client ends: the broker need not keep what it wanted.
    mutating func left() -> [ClientAction] {
        guard phase == .ready, token != nil else { return [] }
        token = nil
        return [.send(.bye)]
    }

    /// A message of the broker arrived.
    mutating func received(_ message: consuming BrokerMessage) -> [ClientAction] {
        if phase == .ready, message.isReply { replies += 1 }
        switch consume message {
        case .welcome(let welcome): return welcomed(by: welcome)
        case .accepted(let handler, let request): return accepted(RequestKey(handler, request))
        case .terminal(let terminal): return terminalReceived(terminal)
        case .progress(let progress):
            let key = RequestKey(progress.handler, progress.request)
            return isStale(key) ? [] : [.report(.progress(progress))]
        case .cancelled(let handler, let request):
            let key = RequestKey(handler, request)
            return settleCancel(key) ? [.report(.cancelled(key))] : []
        case .removed(let pattern, let count):
            return settle(.remove(pattern)) ? [.report(.removed(pattern, count: count))] : []
        case .answer(let query): return answered(query)
        case .changed(let setting): return settleSetting() ? [.report(.changed(setting))] : []
        case .error(let reply): return refused(reply)
        case .goodbye(let reason):
            guard reason == "draining" else { return [.reconnect] }
            isDraining = true
            return [.report(.state(.draining))]
        }
    }

    /// A pass has ended: what was finished in it is acknowledged in one.
    mutating func passEnded() -> [ClientAction] {
        guard phase == .ready, let sequence = ledger.takeAcknowledgement() else { return [] }
        var actions = say(.acknowledge(sequence))
        for key in waiting {
            guard let waitsFor = requests[key]?.waitsFor, waitsFor <= sequence else { continue }
            waiting.remove(key)
            requests[key]?.waitsFor = nil
            if !isDraining { actions += sayRequest(key) }
        }
        return actions
    }

    // MARK: What the consumer wants

    /// A request, to be heard of until its terminal; or a submission, if it says `subscribes: false`.
    ///
    /// - Parameter old: all that is wanted of its handler, if it replaces that; nil to look for it, in O(requests).
    mutating func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) -> [ClientAction] {
        guard fetch.value.options.subscribes else {
            return ask(.submission(fetch.value))
        }
        guard fetch.value.options.replacesHandler else { return ask(fetch, losses: 0) }
        let said = forget(.handler(fetch.value.handler), old)
        for key in said { replaced[key] = .max }
        let actions = ask(fetch, losses: 0)
        if phase == .ready { for key in said where replaced[key] != nil { replaced[key] = self.said } }
        return actions
    }

    mutating func cancel(_ key: RequestKey) -> [ClientAction] {
        let request = requests.removeValue(forKey: key)
        waiting.remove(key)
        // What nobody has heard of needs no words: while there is no broker they would pile up without end.
        if request?.isUnheard == true { return [.report(.cancelled(key))] }
        return ask(.cancel(key))
    }

    /// - Parameter old: all that is wanted of it; nil to look for it, in O(requests).
    mutating func remove(_ pattern: HandlerPattern, _ old: [RequestKey]? = nil) -> [ClientAction] {
        forget(pattern, old)
        return ask(.remove(pattern))
    }

    mutating func subscribe(_ pattern: HandlerPattern) -> [ClientAction] {
        guard !subscriptions.contains(pattern) else { return [] }
        subscriptions.append(pattern)
        return notify(.subscribe(pattern))
    }

    mutating func unsubscribe(_ pattern: HandlerPattern) -> [ClientAction] {
        subscriptions.removeAll { $0 == pattern }
        return notify(.unsubscribe(pattern))
    }

    mutating func setPriority(_ key: RequestKey, _ priority: PriorityClass) -> [ClientAction] {
        if var fetch = requests[key]?.fetch.value {
            fetch.options.priority = priority
            requests[key]?.fetch = Shared(fetch)
        }
        return notify(.priority(key.handler, key.request, priority))
    }

    mutating func query(_ query: Query, _ page: QueryPage = QueryPage()) -> [ClientAction] {
        ask(.query(query, page))
    }

    mutating func set(_ setting: SettingWords) -> [ClientAction] {
        ask(.setting(setting))
    }

    /// Whether a delivery is of the session that there is.
    func isDue(_ id: Delivery.ID) -> Bool { id.link == link }

    /// The consumer is done with a delivery. Late ones, of a connection that is gone, mean nothing.
    mutating func finish(_ id: Delivery.ID) {
        guard isDue(id) else { return }
        ledger.finish(id.sequence)
    }

    /// The consumer could not read the delivery's file: asks again for what was asked.
    ///
    /// - Returns: nil when that has happened too often, when it must not be done twice, or when it was not this
    ///   client's.
    mutating func askAgain(_ delivery: Delivery) -> [ClientAction]? {
        finish(delivery.id)
        guard var fetch = delivery.fetch, fetch.options.isRepeatable, delivery.losses < OpenRequest.mostLosses else {
            return nil
        }
        // It has replaced what was there before it, and must not purge what was asked for since.
        fetch.options.replacesHandler = false
        return ask(Shared(fetch), losses: delivery.losses + 1)
    }
}
