import EarshotWire
import Testing

@testable import EarshotCore

/// Numbers of messages, and the answers that name them.
struct NumberTests {
    private var bed = DurableBed()

    private static func message(_ head: String) -> ClientMessage {
        guard let message = try? ClientMessage(head: Array(head.utf8)) else { preconditionFailure("\(head)") }
        return message
    }

    /// A message of each verb that takes a number, and its answer.
    private static let dialogue: [(head: String, answer: String?)] = [
        ("SUBSCRIBE s/", "OK"),
        ("FETCH h 1 http://h/", nil),
        ("PRIORITY h 1 high", "OK"),
        ("FETCH h 1 http://other/", "ERROR id-in-use"),
        ("FETCH d 1 http://d/\ndurable: yes\nsubscribe: no", "ACCEPTED d 1"),
        ("FETCH o 1 http://o/\nsubscribe: no", "OK"),
        ("FETCH o 1 http://other/\nsubscribe: no", "ERROR id-in-use"),
        ("QUERY ping", "ANSWER ping"),
        ("SET origin-limit 3", "CHANGED origin-limit 3"),
        ("COOKIES h http://h/\n\na=b", "OK"),
        ("TAKE 99", "ERROR unknown-body"),
        ("RETRY d 1", "ACCEPTED d 1"),
        ("REMOVE h 1", "REMOVED h 1 1"),
        ("REMOVE d", "REMOVED d 1"),
        ("UNSUBSCRIBE s/", "OK"),
        ("FETCH h 1 http://new/\nreplace: yes", nil),
        ("PRIORITY h 1 low", "OK"),
        ("FETCH d 2 http://d/\ndurable: yes\nmethod: POST\ncoalesce: no", "FAILED d 2 unsupported-method"),
        ("REMOVE h", "REMOVED h 1"),
        ("PRIORITY h 1 low", "ERROR unknown-request"),
    ]

    private static let answers = dialogue.enumerated().compactMap { index, turn in
        turn.answer.map { "\(index + 1) \($0)" }
    }

    private mutating func connect(
        _ number: UInt64, window: Int = 256, resuming session: ClientID? = nil, unanswered: UInt64? = nil
    ) -> ClientID {
        let id = ClientID(rawValue: number)
        var hello = Hello(window: window)
        hello.leaseMilliseconds = 1_000
        hello.token = session.map { CoreRig.token(of: $0) }
        hello.firstUnansweredNumber = unanswered
        bed.pass { rig in
            rig.connect(id)
            rig.send(.hello(hello), by: id)
        }
        return id
    }

    private mutating func send(_ head: String, _ number: UInt64, by client: ClientID) -> [String] {
        bed.pass { $0.send(Self.message(head), number: number, by: client) }
        return bed.rig.answers(to: client)
    }

    /// Number of the last message according to the WELCOME of the last pass; nil for a new session.
    private func resumed(_ client: ClientID) -> UInt64? {
        for case .welcome(let welcome) in bed.rig.replies(to: client) { return welcome.lastReceivedNumber }
        return nil
    }

    // MARK: Answers

    @Test mutating func `each message has one answer, which names it`() {
        let client = connect(1)
        var answers: [String] = []
        for (index, turn) in Self.dialogue.enumerated() {
            answers += send(turn.head, UInt64(index + 1), by: client)
            #expect(bed.rig.replies(to: client).isEmpty, "\(turn.head)")
        }
        #expect(answers == Self.answers)
        #expect(bed.rig.terminals(for: client).isEmpty)
    }

    @Test mutating func `OK follows the removal that a submission begins with`() {
        var limits = CoreLimits()
        (limits.maximumRequestRemovalsPerPass, limits.maximumWithdrawalChecksPerPass) = (1, 1)
        bed = DurableBed(limits: limits)
        let client = connect(1)
        bed.pass { rig in
            for id in 1...70 { rig.send(Self.message("FETCH h \(id) http://h/"), number: UInt64(id), by: client) }
        }
        #expect(send("FETCH h new http://h/\nreplace: yes\nsubscribe: no", 71, by: client) == [])
        var answers: [String] = []
        while bed.rig.core.hasPendingRemoval(by: client) {
            bed.pass()
            answers += bed.rig.answers(to: client)
        }
        #expect(answers == ["71 OK"])
        #expect(bed.rig.core.audit() == [])
    }

    @Test mutating func `messages without numbers are answered as before`() {
        let client = bed.rig.client(1)
        for turn in Self.dialogue { bed.pass { $0.send(Self.message(turn.head), by: client) } }
        #expect(bed.rig.answers(to: client).isEmpty)
    }

    @Test mutating func `with a lease each message that can have a number needs one`() {
        let client = connect(1)
        // Its number has no answer yet. No refusal may name it.
        #expect(send("FETCH open 1 http://open/", 1, by: client) == [])
        for turn in Self.dialogue {
            bed.pass { $0.core.clientMessageReceived(Self.message(turn.head), from: client, now: $0.now) }
            let codes = bed.rig.replies(to: client).map { if case .error(let reply) = $0 { reply.code } else { "" } }
            #expect(codes == ["bad-message"], "\(turn.head)")
            #expect(bed.rig.answers(to: client).isEmpty, "\(turn.head): the refusal names no message")
        }
        for head in ["ACK 0", "READ 1 0 1", "BYE"] {
            bed.pass { $0.send(Self.message(head), by: client) }
            // READ is refused for another reason: the session gets paths.
            #expect(bed.rig.replies(to: client).count == (head.hasPrefix("READ") ? 1 : 0), "\(head)")
        }
        #expect(bed.rig.core.audit() == [])
    }

    @Test(arguments: [0, 1, 6, 7])
    mutating func `an old number is refused and the message not carried out`(old: UInt64) {
        let client = connect(1)
        _ = send("FETCH h 1 http://h/", 5, by: client)
        #expect(send("REMOVE x", 7, by: client) == ["7 REMOVED x 0"])
        #expect(send("REMOVE h", old, by: client) == [])
        let codes = bed.rig.replies(to: client).compactMap {
            if case .error(let reply) = $0 { reply.code } else { nil }
        }
        #expect(codes == ["bad-message"])
        #expect(send("REMOVE h", 8, by: client) == ["8 REMOVED h 1"])
    }

    @Test mutating func `a malformed message has its number in the answer, and uses it up`() {
        let client = connect(1)
        for (number, answer) in [(3, ["3 ERROR bad-message"]), (3, []), (2, [])] {
            let head = Array("SUBSCRIBE /\nnumber: \(number)\n".utf8)
            bed.pass { rig in
                do throws(WireError) {
                    _ = try NumberedMessage(head: head)
                } catch {
                    rig.core.malformedClientMessageReceived(error, from: client, now: rig.now)
                }
            }
            #expect(bed.rig.answers(to: client) == answer)
            #expect(bed.rig.replies(to: client).count == (answer.isEmpty ? 1 : 0))
        }
        #expect(send("QUERY ping", 4, by: client) == ["4 ANSWER ping"])
    }

    @Test mutating func `too many unanswered numbers are refused, but for those that do not count`() {
        var limits = CoreLimits()
        limits.maximumRepliesPerLeasedSession = 3
        bed = DurableBed(limits: limits)
        let client = connect(1)
        bed.rig.pass { rig in
            for number in 1...4 as ClosedRange<UInt64> {
                let head = "FETCH d \(number) http://d/\(number)\ndurable: yes"
                rig.send(Self.message(head), number: number, by: client)
            }
            rig.send(Self.message("FETCH h 1 http://h/"), number: 5, by: client)
            rig.send(Self.message("QUERY ping"), number: 6, by: client)
            rig.send(Self.message("SUBSCRIBE x"), number: 7, by: client)
        }
        bed.disk.take(bed.rig.actions)
        #expect(bed.rig.answers(to: client) == ["4 ERROR limit", "6 ANSWER ping", "7 ERROR limit"])
        bed.pass()
        #expect(bed.rig.answers(to: client) == ["1 ACCEPTED d 1", "2 ACCEPTED d 2", "3 ACCEPTED d 3"])
        #expect(send("SUBSCRIBE x", 8, by: client) == ["8 OK"])
    }

    @Test mutating func `each FETCH of a durable request is answered, and a refusal is no terminal`() {
        let client = connect(1)
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("d")!), by: other) }
        let head = "FETCH d 1 http://d/\ndurable: yes"
        bed.disk.isFull = true
        bed.pass { rig in for number in 1...3 { rig.send(Self.message(head), number: UInt64(number), by: client) } }
        #expect(bed.rig.answers(to: client) == (1...3).map { "\($0) FAILED d 1 queue-full" })
        #expect(bed.rig.terminals(for: client).isEmpty && bed.rig.terminals(for: other) == ["d 1 queue-full"])
        bed.disk.isFull = false
        bed.pass { rig in
            let head = "FETCH d 2 http://d/\ndurable: yes"
            for number in 4...5 { rig.send(Self.message(head), number: UInt64(number), by: client) }
            rig.send(Self.message("REMOVE d 2"), number: 6, by: client)
        }
        #expect(
            bed.rig.answers(to: client) == ["4 FAILED d 2 removed", "5 FAILED d 2 removed", "6 REMOVED d 2 1"])
        #expect(bed.rig.terminals(for: client).isEmpty)
    }

    // MARK: Resumption

    /// A client that has sent all messages of the dialogue, of which the broker has carried out some. It resumes the
    /// session and repeats the others.
    @Test(arguments: 0...20, [false, true])
    mutating func `after a cut at any place each message is carried out once and answered once`(
        carriedOut: Int, inOnePass: Bool
    ) {
        let count = Self.dialogue.count
        for received in 0...Self.answers.count {
            bed = DurableBed()
            let client = connect(1)
            var sent: [String] = []
            if inOnePass {
                bed.rig.pass { rig in
                    for (index, turn) in Self.dialogue.prefix(carriedOut).enumerated() {
                        rig.send(Self.message(turn.head), number: UInt64(index + 1), by: client)
                    }
                }
                sent = bed.rig.answers(to: client)
                bed.disk.take(bed.rig.actions)
            } else {
                for (index, turn) in Self.dialogue.prefix(carriedOut).enumerated() {
                    sent += send(turn.head, UInt64(index + 1), by: client)
                }
            }
            guard received <= sent.count else { return }
            bed.pass { $0.core.clientLost(client, now: $0.now) }
            var answers = Set(sent.prefix(received))
            let next = connect(2, resuming: client, unanswered: Self.unanswered(answers))
            #expect(resumed(next) == UInt64(carriedOut), "\(received) of \(sent.count)")
            for answer in bed.rig.answers(to: next) { answers.insert(answer) }
            let second = bed.rig.answers(to: next)
            #expect(Set(second).count == second.count)
            for (index, turn) in Self.dialogue.enumerated().dropFirst(carriedOut) {
                for answer in send(turn.head, UInt64(index + 1), by: next) { answers.insert(answer) }
            }
            let query = "8 ANSWER ping"
            if !answers.contains(query) {
                let again = send("QUERY ping", UInt64(count + 1), by: next)
                #expect(again == ["\(count + 1) ANSWER ping"])
                answers.insert(query)
            }
            var expected = Set(Self.answers)
            if inOnePass, carriedOut >= 14 {
                // The row is not on disk when it is removed.
                let refused = ["5 FAILED d 1 removed", "12 FAILED d 1 removed"]
                expected = expected.filter { !$0.hasSuffix("ACCEPTED d 1") }.union(refused)
            }
            #expect(answers == expected, "\(carriedOut) carried out, \(received) received")
            #expect(bed.rig.core.audit() == [])
        }
    }

    /// The number that a client with these answers names in HELLO.
    private static func unanswered(_ answers: Set<String>) -> UInt64 {
        let answered = Set(answers.map { UInt64($0.prefix { $0 != " " })! })
        let lowest = dialogue.indices.first { index in
            message(dialogue[index].head).countsAsUnanswered && !answered.contains(UInt64(index + 1))
        }
        return min(lowest.map { UInt64($0 + 1) } ?? .max, (answered.max() ?? 0) + 1)
    }

    @Test mutating func `a client that lacks answers that are gone, or names unknown numbers, gets a new session`() {
        var limits = CoreLimits()
        limits.maximumRepliesPerLeasedSession = 3
        bed = DurableBed(limits: limits)
        let client = connect(1)
        for number in 1...5 { _ = send("SUBSCRIBE s\(number)", UInt64(number), by: client) }
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        var connections: UInt64 = 2
        for unanswered in [1, 2, 7, UInt64(Int.max)] {
            let next = connect(connections, resuming: client, unanswered: unanswered)
            #expect(resumed(next) == nil && bed.rig.answers(to: next).isEmpty, "\(unanswered)")
            connections += 1
        }
        let next = connect(connections, resuming: client, unanswered: 3)
        #expect(resumed(next) == 5)
        #expect(bed.rig.answers(to: next) == ["3 OK", "4 OK", "5 OK"])
        bed.pass { $0.core.clientLost(next, now: $0.now) }
        let last = connect(connections + 1, resuming: client, unanswered: 6)
        #expect(resumed(last) == 5 && bed.rig.answers(to: last).isEmpty)
    }

    @Test mutating func `queries do not displace answers that are kept`() {
        var limits = CoreLimits()
        limits.maximumRepliesPerLeasedSession = 2
        bed = DurableBed(limits: limits)
        let client = connect(1)
        _ = send("REMOVE x", 1, by: client)
        for number in 2...9 { #expect(send("QUERY ping", UInt64(number), by: client).count == 1) }
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        let next = connect(2, resuming: client, unanswered: 1)
        #expect(resumed(next) == 9 && bed.rig.answers(to: next) == ["1 REMOVED x 0"])
    }
}
