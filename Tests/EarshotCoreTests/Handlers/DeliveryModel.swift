/// Reference model of requests, removals and terminals, written from `protocols/1-core.md` and not from the core.
///
/// It receives all messages in their order, and the ends of attempts. It knows which terminals each session may get and
/// which it must get. Requests with one ID have different URLs, so a terminal names its request even if a later one has the
/// same ID. If something depends on the progress of a removal in slices, both ways are permitted until the reply or a quiet moment.
struct DeliveryModel {
    struct Request {
        let handler: String
        let id: String
        let url: String
        var owner: Int
        var phase = Phase.open
        /// Outcomes that it may have had without a sign: it joined an ended attempt, or met a removal of its name.
        var doubt: Set<String> = []
        /// Session whose acknowledgement frees the ID; nil for any of them.
        var awaited: Int?

        var name: String { "\(handler) \(id)" }

        /// Whether it is certain that the request waits for its first subscriber; nil if it does not.
        var isHeldCertainly: Bool? { if case .held(_, _, let isCertain) = phase { isCertain } else { nil } }
    }

    /// open → ended, or held for the first subscriber; open → leaving, for some passes → removed
    enum Phase: Equatable {
        case open, leaving, removed
        case ended(String)
        case held(String, until: Int, isCertain: Bool)
    }

    /// Terminal that a session gets: one of these outcomes.
    typealias Due = (outcomes: Set<String>, isRequired: Bool)
    /// `isWithdrawn`: the session has removed the request since.
    typealias Sent = (sequence: UInt64, tag: Int, isWithdrawn: Bool)

    /// Message that awaits its answer: a removal, or a FETCH with an ID that another request has.
    struct PendingMessage {
        var refused: String?
        var pattern = ""
        var endsSubscriptions = false
        /// Terminals that wait for the remover.
        var tags: Set<Int> = []
        /// Bounds of the count in the reply.
        var least = 0
        var most = 0
    }

    struct Session {
        let window: Int
        let leaseMilliseconds: Int
        var subscriptions: Set<String> = []
        var due: [Int: Due] = [:]
        var unacknowledged: [Sent] = []
        /// Terminals that a resumed session gets again.
        var again: [Sent] = []
        var lastSequence: UInt64 = 0
        var questions: [PendingMessage] = []
        /// Handler and ID of a FETCH that replaces and is not carried out yet.
        var replacing: String?
        /// Numbers of its last message, and of the last one with an answer.
        var lastNumber: UInt64 = 0
        var lastAnswered: UInt64 = 0
        /// End of the lease of a session that is away.
        var leaseEnd: Int?
        var isOpen: Bool { leaseEnd == nil && unacknowledged.count < window }
    }

    var sessions: [Int: Session] = [:]
    private(set) var faults: [String] = []
    private(set) var requests: [Int: Request] = [:]
    /// Tags of the requests whose IDs are taken.
    private(set) var named: [String: Int] = [:]
    /// IDs that may be taken or free.
    private var unsettled: Set<String> = []
    /// Outcomes of attempts that no open request needed. A later request may get them for a while.
    private var late: [String: String] = [:]
    private var hasDeparting = false

    private static func matches(_ handler: String, _ pattern: String) -> Bool {
        pattern.hasSuffix("/") ? handler.hasPrefix(pattern) : handler == pattern
    }

    private mutating func fault(_ invariant: Int, _ text: String) { faults.append("\(invariant): \(text)") }

    private func subscribers(_ handler: String) -> [Int] {
        sessions.filter { $0.value.subscriptions.contains { Self.matches(handler, $0) } }.map(\.key)
    }

    private func isRemoving(_ session: Int, _ handler: String) -> Bool {
        sessions[session]?.questions.contains { $0.endsSubscriptions && Self.matches(handler, $0.pattern) } == true
    }

    /// Adds to the counts of unanswered removals of subtrees with this handler. Returns whether there is one.
    @discardableResult
    private mutating func adjust(_ handler: String, except session: Int?, least: Int = 0, most: Int = 0) -> Bool {
        var isFound = false
        for number in sessions.keys where number != session {
            for (index, question) in (sessions[number]?.questions ?? []).enumerated()
            where question.pattern.hasSuffix("/") && Self.matches(handler, question.pattern) {
                sessions[number]?.questions[index].least += least
                sessions[number]?.questions[index].most += most
                isFound = true
            }
        }
        return isFound
    }

    /// The connection of a session has ended.
    mutating func lost(_ session: Int, now: Int) {
        guard let lease = sessions[session]?.leaseMilliseconds, lease > 0 else { return ended(session) }
        sessions[session]?.leaseEnd = now + lease
    }

    /// Another connection continues a session.
    mutating func resumed(_ session: Int, number: UInt64?) {
        guard let state = sessions[session] else { return fault(1, "session \(session) is resumed after its end") }
        if number != state.lastNumber { fault(1, "session \(session): \(number ?? 0) of \(state.lastNumber)") }
        sessions[session]?.leaseEnd = nil
        sessions[session]?.again = state.unacknowledged
    }

    /// A session has ended: by BYE, or with its connection or lease.
    mutating func ended(_ session: Int) {
        guard let state = sessions.removeValue(forKey: session) else { return }
        hasDeparting = true
        for (tag, request) in requests where request.owner == session {
            switch request.phase {
            case .open:
                refuse(tag, by: nil)
                requests[tag]?.phase = .leaving
            case .leaving: adjust(request.handler, except: nil, least: -1)
            case .held(_, _, isCertain: true): free(tag, as: .leaving)
            case .held, .ended, .removed: break
            }
        }
        for tag in Set(state.due.keys).union(state.unacknowledged.map(\.tag)) {
            if let name = requests[tag]?.name, named[name] == tag { unsettled.insert(name) }
            release(tag, by: session, isAcknowledged: false)
        }
    }

    /// Ends sessions after their leases, and held results that no client received in time.
    mutating func passed(to now: Int) {
        for (session, state) in sessions where state.leaseEnd.map({ $0 <= now }) == true { ended(session) }
        for (tag, request) in requests {
            if case .held(_, let until, _) = request.phase, until <= now { free(tag, as: .removed) }
        }
    }

    /// Whether the effect of a FETCH with this ID is certain.
    func isCertain(_ handler: String, _ id: String) -> Bool {
        let name = "\(handler) \(id)"
        // The IDs of a subtree are free once its removal has reached their handlers.
        let isReached = !sessions.values.contains { session in
            session.questions.contains { $0.pattern.hasSuffix("/") && Self.matches(handler, $0.pattern) }
        }
        let isAwaited = sessions.values.contains { $0.replacing == name }
        guard isReached, !isAwaited, !unsettled.contains(name) else { return false }
        guard let tag = named[name], let request = requests[tag] else { return true }
        return request.doubt.isEmpty && request.isHeldCertainly != false
    }

    /// A FETCH that replaces has come. It counts as carried out when the requests that it replaces are gone.
    mutating func replace(_ session: Int, _ handler: String, _ id: String) {
        _ = removeAll(by: session, isSliced: false) { $0.handler == handler }
        for tag in withdraw(from: session, where: { $0.handler == handler }) { sessions[session]?.due[tag] = nil }
        sessions[session]?.replacing = "\(handler) \(id)"
    }

    /// A FETCH is carried out.
    mutating func fetch(_ session: Int, _ handler: String, _ id: String, _ url: String, tag: Int) {
        sessions[session]?.replacing = nil
        var request = Request(handler: handler, id: id, url: url, owner: session)
        if let old = named[request.name], requests[old]?.url != url {
            sessions[session]?.questions.append(PendingMessage(refused: request.name))
            return
        }
        subscribe(session, to: handler)
        if let old = named[request.name] { return repeated(old, by: session) }
        // A request of an ended session with this name is removed first.
        for (earlier, other) in requests where other.phase == .leaving && other.name == request.name {
            requests[earlier]?.phase = .removed
        }
        if let outcome = late[url] { request.doubt.insert(outcome) }
        if adjust(handler, except: session, most: 1) { request.doubt.insert("removed") }
        requests[tag] = request
        named[request.name] = tag
        guard !request.doubt.isEmpty else { return }
        for subscriber in subscribers(handler) { sessions[subscriber]?.due[tag] = (request.doubt, isRequired: false) }
    }

    private mutating func repeated(_ tag: Int, by session: Int) {
        if requests[tag]?.phase == .open { requests[tag]?.owner = session }
        guard case .ended(let outcome)? = requests[tag]?.phase, let state = sessions[session] else { return }
        if state.due[tag] != nil || state.unacknowledged.contains(where: { $0.tag == tag }) { return }
        sessions[session]?.due[tag] = (outcomes: [outcome], isRequired: true)
    }

    mutating func subscribe(_ session: Int, to pattern: String) {
        sessions[session]?.subscriptions.insert(pattern)
        for (tag, request) in requests where Self.matches(request.handler, pattern) {
            switch request.phase {
            case .held(let outcome, _, let isCertain):
                requests[tag]?.phase = .ended(outcome)
                sessions[session]?.due[tag] = (outcomes: [outcome], isRequired: isCertain)
                if !isCertain { unsettled.insert(request.name) }
            case .leaving where sessions[session]?.due[tag] == nil:
                sessions[session]?.due[tag] = (outcomes: request.doubt.union(["removed"]), isRequired: false)
            case .open where !request.doubt.isEmpty && sessions[session]?.due[tag] == nil:
                sessions[session]?.due[tag] = (request.doubt, isRequired: false)
            default: break
            }
        }
    }

    /// Terminals that were due come still, but a removal in slices may leave the session out.
    mutating func unsubscribe(_ session: Int, from pattern: String) {
        sessions[session]?.subscriptions.remove(pattern)
        for (tag, request) in requests where request.phase == .leaving || request.phase == .removed {
            if !subscribers(request.handler).contains(session) { sessions[session]?.due[tag]?.isRequired = false }
        }
    }

    /// `id`: ID of the one request; nil for all, and the subscriptions to handlers.
    mutating func remove(_ session: Int, _ pattern: String, id: String?) {
        let isMeant: (Request) -> Bool = { Self.matches($0.handler, pattern) && (id == nil || $0.id == id) }
        var question = removeAll(by: session, isSliced: pattern.hasSuffix("/"), isMeant)
        (question.pattern, question.tags) = (pattern, withdraw(from: session, where: isMeant))
        question.endsSubscriptions = id == nil
        sessions[session]?.questions.append(question)
    }

    /// Returns the waiting terminals of these requests. They, and those sent before, need not come any more.
    private mutating func withdraw(from session: Int, where isMeant: (Request) -> Bool) -> Set<Int> {
        guard var state = sessions[session] else { return [] }
        let tags = Set(state.due.keys.filter { requests[$0].map(isMeant) == true })
        for tag in tags { state.due[tag]?.isRequired = false }
        for (index, sent) in state.unacknowledged.enumerated() where requests[sent.tag].map(isMeant) == true {
            state.unacknowledged[index].isWithdrawn = true
        }
        sessions[session] = state
        return tags
    }

    mutating func acknowledge(_ session: Int, _ sequence: UInt64) {
        let sent = sessions[session]?.unacknowledged ?? []
        sessions[session]?.unacknowledged.removeAll { $0.sequence <= sequence }
        sessions[session]?.again.removeAll { $0.sequence <= sequence }
        for each in sent where each.sequence <= sequence { release(each.tag, by: session, isAcknowledged: true) }
    }

    /// Returns a question with the bounds of its count.
    private mutating func removeAll(by session: Int, isSliced: Bool, _ isMeant: (Request) -> Bool) -> PendingMessage {
        var question = PendingMessage()
        for (tag, request) in requests where isMeant(request) {
            if isSliced, named[request.name] == tag { unsettled.insert(request.name) }
            switch request.phase {
            case .open:
                question.most += 1
                if request.doubt.isEmpty { question.least += 1 }
                refuse(tag, by: session)
                requests[tag]?.phase = isSliced ? .leaving : .removed
                if isSliced { sessions[session]?.due[tag] = (request.doubt.union(["removed"]), isRequired: false) }
            case .leaving:
                question.most += 1
                adjust(request.handler, except: session, least: -1)
            case .ended: free(tag, as: request.phase)
            case .held(let outcome, _, let isCertain):
                question.most += 1
                // A removal in slices may come to it after a first subscriber.
                if isCertain, !isSliced { question.least += 1 }
                if isSliced { requests[tag]?.doubt.insert(outcome) }
                free(tag, as: isSliced ? .leaving : .removed)
            case .removed: break
            }
        }
        return question
    }

    /// Each other subscriber gets one FAILED `removed`.
    private mutating func refuse(_ tag: Int, by session: Int?) {
        guard let request = requests[tag] else { return }
        free(tag, as: request.phase)
        for subscriber in subscribers(request.handler) where subscriber != session {
            expectTerminal(tag, "removed", to: subscriber)
        }
    }

    /// An attempt that the broker has not cancelled has ended the requests for its URL.
    mutating func attemptEnded(_ url: String, _ outcome: String, now: Int) {
        var isNeeded = false
        for (tag, request) in requests where request.url == url {
            if request.phase == .open {
                isNeeded = true
                end(tag, outcome, now: now)
            } else if request.phase == .leaving {
                for session in sessions.keys { sessions[session]?.due[tag]?.outcomes.insert(outcome) }
                adjust(request.handler, except: nil, least: -1)
            }
        }
        if !isNeeded { late[url] = outcome }
    }

    private mutating func end(_ tag: Int, _ outcome: String, now: Int) {
        guard let request = requests[tag] else { return }
        let subscribers = subscribers(request.handler)
        for session in subscribers { expectTerminal(tag, outcome, to: session) }
        // A removal may or may not have ended a subscription.
        let remaining = subscribers.filter { !isRemoving($0, request.handler) }
        requests[tag]?.awaited = remaining.contains(request.owner) ? request.owner : nil
        let isCertain = subscribers.isEmpty && !hasDeparting && request.doubt.isEmpty
        requests[tag]?.phase =
            remaining.isEmpty ? .held(outcome, until: now + 10_000, isCertain: isCertain) : .ended(outcome)
    }

    /// A subscriber gets the outcome of a request, unless that may have ended before.
    private mutating func expectTerminal(_ tag: Int, _ outcome: String, to session: Int) {
        guard let request = requests[tag] else { return }
        let isRequired = request.doubt.isEmpty && !isRemoving(session, request.handler)
        sessions[session]?.due[tag] = (request.doubt.union([outcome]), isRequired)
    }

    /// A session has acknowledged or lost its terminal of a request.
    private mutating func release(_ tag: Int, by session: Int, isAcknowledged: Bool) {
        guard let request = requests[tag], case .ended = request.phase, named[request.name] == tag else { return }
        let isShared = sessions.values.contains { $0.due[tag] != nil || $0.unacknowledged.contains { $0.tag == tag } }
        let isFree = request.awaited.map { $0 == session } ?? (isAcknowledged || !isShared)
        if isFree { free(tag, as: request.phase) }
    }

    private mutating func free(_ tag: Int, as phase: Phase) {
        requests[tag]?.phase = phase
        if let name = requests[tag]?.name, named[name] == tag { named[name] = nil }
    }

    /// Returns the request of a terminal. One that was removed has no URL; of several the oldest is meant that may get it.
    private func tag(_ name: String, _ url: String?, _ outcome: String, _ sequence: UInt64, to session: Session) -> Int?
    {
        let fits = { (tag: Int) in requests[tag].map { $0.name == name && (url == nil || $0.url == url) } == true }
        if let again = session.again.first(where: { $0.sequence == sequence })?.tag, fits(again) { return again }
        let candidates = requests.keys.filter(fits).sorted()
        return candidates.first { session.due[$0]?.outcomes.contains(outcome) == true } ?? candidates.last
    }

    /// - Parameter url: URL in the terminal; nil without one.
    mutating func terminal(_ session: Int, name: String, url: String?, outcome: String, sequence: UInt64) {
        let text = "\(name) \(outcome), URL \(url ?? "-"), number \(sequence), to session \(session)"
        guard let state = sessions[session], state.leaseEnd == nil else { return fault(2, "\(text), which has ended") }
        guard let tag = tag(name, url, outcome, sequence, to: state), let request = requests[tag] else {
            return fault(1, "\(text): no such request")
        }
        let missing = state.again.prefix { $0.sequence < sequence }
        if missing.contains(where: { !$0.isWithdrawn }) { fault(1, "\(text): an earlier one does not come again") }
        sessions[session]?.again.removeFirst(missing.count)
        guard sequence > state.lastSequence else {
            let next = state.again.dropFirst(missing.count).first
            if next?.sequence != sequence || next?.tag != tag { return fault(1, "\(text): it came before") }
            sessions[session]?.again.removeFirst()
            return
        }
        sessions[session]?.lastSequence = sequence
        guard let due = sessions[session]?.due.removeValue(forKey: tag), due.outcomes.contains(outcome) else {
            return fault(request.phase == .removed ? 2 : 1, "\(text): due is \(state.due[tag]?.outcomes ?? [])")
        }
        if request.phase == .open { resolve(tag, outcome) }
        sessions[session]?.unacknowledged.append((sequence, tag, isWithdrawn: false))
        if state.unacknowledged.count >= state.window { fault(11, "\(text): more than its window") }
    }

    /// A terminal shows how a request in doubt has ended.
    private mutating func resolve(_ tag: Int, _ outcome: String) {
        requests[tag]?.doubt = []
        if let owner = requests[tag]?.owner { requests[tag]?.awaited = owner }
        if outcome == "removed" { free(tag, as: .removed) } else { requests[tag]?.phase = .ended(outcome) }
    }

    /// `error`: handler and ID that an ERROR names; nil for another reply. `count`: operand of a REMOVED.
    mutating func reply(_ session: Int, error: String?, count: Int?) {
        guard let first = sessions[session]?.questions.first else {
            return fault(1, "\(session) has not asked for a reply: \(error ?? "REMOVED \(count ?? -1)")")
        }
        sessions[session]?.questions.removeFirst()
        if error != first.refused { fault(1, "session \(session) gets an error of \(error ?? "none"): \(first)") }
        if let count, count < first.least || count > first.most { fault(10, "removed \(count): \(first)") }
        // From here on nothing of a removal comes.
        for tag in first.tags { sessions[session]?.due[tag] = nil }
        if first.endsSubscriptions, let old = sessions[session]?.subscriptions {
            sessions[session]?.subscriptions = old.filter { $0.hasSuffix("/") || !Self.matches($0, first.pattern) }
        }
        guard first.pattern.hasSuffix("/") else { return }
        for (tag, request) in requests where Self.matches(request.handler, first.pattern) {
            // One made meanwhile belongs to the removal if that had not reached its name yet.
            let mayBeOther = request.doubt.contains("removed")
            if request.phase == .leaving, !mayBeOther { requests[tag]?.phase = .removed }
            if request.phase == .open, mayBeOther { sessions[session]?.due[tag] = nil }
        }
    }

    /// The broker has nothing left to do before another event. `running`: URLs of the attempts that it has not cancelled.
    /// `pending`: requests that have not ended, by its ledger.
    mutating func checkIdle(running: [String], pending: Int) {
        for (number, session) in sessions where session.isOpen {
            if let (tag, due) = session.due.first(where: { $0.value.isRequired }) {
                fault(1, "session \(number) never gets \(due.outcomes) of \(requests[tag]?.name ?? "?"), tag \(tag)")
            }
            // The owner would have got the terminal of an ended request.
            for (tag, request) in requests where request.owner == number && session.due[tag] != nil {
                guard request.phase == .open, subscribers(request.handler).contains(number) else { continue }
                requests[tag]?.doubt = []
            }
            sessions[number]?.due = [:]
            if session.again.contains(where: { !$0.isWithdrawn }) { fault(1, "\(number) does not get all again") }
            if let question = session.questions.first { fault(1, "session \(number) has no answer: \(question)") }
        }
        for (tag, request) in requests where request.phase == .leaving { requests[tag]?.phase = .removed }
        (unsettled, late, hasDeparting) = ([], [:], false)
        let open = requests.values.filter { $0.phase == .open }
        for url in running where !open.contains(where: { $0.url == url }) { fault(4, "\(url) runs for nobody") }
        // A request whose outcome waits for a first subscriber has not ended.
        let held = requests.values.compactMap(\.isHeldCertainly)
        let least = open.count { $0.doubt.isEmpty } + held.count { $0 }
        let most = open.count + held.count
        if pending < least || pending > most { fault(10, "pending: \(pending), not \(least) to \(most)") }
        let waiting = sessions.values.flatMap { Array($0.due.keys) + $0.unacknowledged.map(\.tag) }
        let kept = Set(waiting).union(named.values)
        requests = requests.filter { tag, request in request.phase == .open || kept.contains(tag) }
    }

    /// Whether each request has ended and each terminal has come.
    var isFinished: Bool {
        !requests.values.contains { $0.phase == .open && $0.doubt.isEmpty }
            && sessions.values.allSatisfy { $0.due.isEmpty }
    }
}
