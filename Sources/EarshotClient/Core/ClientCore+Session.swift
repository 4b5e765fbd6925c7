internal import DequeModule
internal import EarshotWire

/// One session over several connections: what was said in it is numbered, so that only what the broker has not heard is
/// said again. Replies are counted, so that the broker sends those again that were lost.
extension ClientCore {
    // MARK: Saying

    /// Says something at once, or not at all: what waits for a connection has its number all the same, so that it is
    /// among what was not heard.
    mutating func say(_ message: ClientMessage) -> [ClientAction] {
        said += 1
        return phase == .ready ? [.send(message)] : []
    }

    /// Says something that is answered.
    mutating func ask(_ what: Awaited) -> [ClientAction] {
        awaited.append(Question(what: what, number: .max, wasSaid: false))
        return sayQuestion(awaited.endIndex - 1)
    }

    mutating func sayQuestion(_ index: Int) -> [ClientAction] {
        let actions = say(awaited[index].what.message)
        awaited[index].number = said
        awaited[index].wasSaid = awaited[index].wasSaid || !actions.isEmpty
        return actions
    }

    mutating func sayRequest(_ key: RequestKey) -> [ClientAction] {
        guard var request = requests[key] else { return [] }
        defer { requests[key] = request }
        return say(&request)
    }

    mutating func say(_ request: inout OpenRequest) -> [ClientAction] {
        defer { request.number = said }
        return say(request.takeMessage(at: milliseconds))
    }

    /// Says something that is not answered.
    mutating func notify(_ message: ClientMessage) -> [ClientAction] {
        let actions = say(message)
        guard token != nil else { return actions }
        notices.append(Notice(message: message, number: said))
        // What may be lost is not known any more: the next connection begins anew.
        if notices.count > Self.mostNotices {
            notices = []
            token = nil
        }
        return actions
    }

    /// The broker has heard all up to this message.
    mutating func heard(_ number: UInt64) {
        guard number < .max else { return }
        while let first = notices.first, first.number <= number { notices.removeFirst() }
        if !replaced.isEmpty { replaced = replaced.filter { $0.value > number } }
    }

    // MARK: Going on

    /// Resumes the session, of which the broker has heard so many messages. What it has not heard is said again, in its
    /// order. The replies that were lost follow; an older broker does not keep them, so they are settled or asked for
    /// again.
    mutating func resumed(_ heard: UInt64, _ welcome: Welcome) -> [ClientAction] {
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))]
        // Their terminals come again after the WELCOME, whatever was heard.
        for key in replaced.keys { replaced[key] = .max }
        self.heard(heard)
        let isAnswered = welcome.replies != nil
        actions += settleHeard(heard, isAnswered: isAnswered)
        var unheard: [(number: UInt64, say: (inout ClientCore) -> [ClientAction])] = []
        for notice in notices { unheard.append((notice.number, { $0.notify(notice.message) })) }
        let answered = awaited.prefix { isAnswered && $0.number <= heard }
        for question in awaited.dropFirst(answered.count) {
            unheard.append((question.number, { $0.sayAgain(question) }))
        }
        for (key, request) in requests where request.number > heard && request.waitsFor == nil {
            if request.number < .max { requests[key]?.wasSaid = false }
            // What was never asked for comes last, in its order.
            let number = request.number == .max ? (UInt64.max >> 1) + request.order : request.number
            unheard.append((number, { $0.sayRequest(key) }))
        }
        notices = []
        awaited = Deque(answered)
        said = heard
        if let sequence = ledger.acknowledged { actions += say(.acknowledge(sequence)) }
        for (_, say) in unheard.sorted(by: { $0.number < $1.number }) { actions += say(&self) }
        for key in replaced.keys { replaced[key] = said + 1 }
        return actions
    }

    private mutating func sayAgain(_ question: Question) -> [ClientAction] {
        awaited.append(question)
        return sayQuestion(awaited.endIndex - 1)
    }

    /// Settles what the broker has heard and will not answer: submissions, which have no answer, and with an older
    /// broker removals. Said again, the answer to a removal would be that there is nothing.
    private mutating func settleHeard(_ heard: UInt64, isAnswered: Bool) -> [ClientAction] {
        var actions: [ClientAction] = []
        awaited.removeAll { question in
            guard question.number <= heard else { return false }
            switch question.what {
            case .cancel(let key):
                guard !isAnswered else { return false }
                actions.append(.report(.cancelled(key)))
            case .replacement: return !isAnswered
            case .remove(let pattern):
                guard !isAnswered else { return false }
                actions.append(.report(.removed(pattern, count: 0)))
            // Whether it is on the disk is not known: asked again, the answer is the same.
            case .submission(let fetch): return !fetch.options.isDurable
            case .query, .setting: return false
            }
            return true
        }
        return actions
    }
}
