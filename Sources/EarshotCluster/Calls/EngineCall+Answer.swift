internal import EarshotCore
internal import EarshotWire
internal import RESP

/// Replies of the engine's scripts, read as events for the core. `EngineBatch` calls `event(forReply:)`.
extension EngineCall {
    /// Event for the reply of its script, which is not an error; nil for a reply of another form.
    func event(forReply reply: Reply) -> EngineEvent? {
        switch self {
        case .wantFlights(let wants):
            guard let states = reply.elements, states.count == wants.count else { return nil }
            var answers: [WantAnswer] = []
            for (want, state) in zip(wants, states) {
                guard let state = WantAnswer.State(reply: state) else { return nil }
                answers.append(WantAnswer(key: want.key, state: state))
            }
            return .wantsAnswered(answers)
        case .takeFlights, .takeWantedFlights: return Self.grantsEvent(reply)
        case .reportCompletions(let completions):
            guard let flags = reply.elements, flags.count == completions.count else { return nil }
            var answers: [CompletionAnswer] = []
            for (completion, flag) in zip(completions, flags) {
                guard let flag = flag.number else { return nil }
                answers.append(CompletionAnswer(key: completion.key, token: completion.token, isCurrent: flag == 1))
            }
            return .completionsAnswered(answers)
        case .reportRefusal(let refusal):
            guard let values = reply.elements, values.count == 2, let rest = values[0].number,
                let strikes = values[1].number, rest >= 0, strikes >= 0
            else { return nil }
            return .cooled(
                CoolDownNotice(origin: refusal.origin.key, remainingMilliseconds: rest, refusalsInRow: strikes))
        case .survey: return Self.surveyEvent(reply)
        case .withdrawWants, .retireMembership, .leaveCluster: return nil
        }
    }

    /// Whether the core needs no answer.
    var needsNoAnswer: Bool {
        switch self {
        case .withdrawWants, .retireMembership, .leaveCluster: true
        case .wantFlights, .takeFlights, .takeWantedFlights, .reportCompletions, .reportRefusal, .survey: false
        }
    }

    /// Maximum length of a member's description: a host name and an address.
    private static let maximumDescriptionLength = 320

    private static func surveyEvent(_ reply: Reply) -> EngineEvent? {
        guard let values = reply.elements, values.count % 4 == 3, let flights = values[0].number,
            let origins = values[1].number, let paused = values[2].number
        else { return nil }
        var members: [EngineSurvey.Member] = []
        for index in stride(from: 3, to: values.count, by: 4) {
            guard let node = values[index].text.flatMap({ NodeID($0) }), let lease = values[index + 1].number,
                let flights = values[index + 2].number,
                let description = values[index + 3].text?.prefix(Self.maximumDescriptionLength)
            else { return nil }
            members.append(
                EngineSurvey.Member(
                    node: node, leaseMilliseconds: lease, flights: flights, description: String(description)))
        }
        return .surveyed(EngineSurvey(flights: flights, origins: origins, pausedOrigins: paused, members: members))
    }

    private static func grantsEvent(_ reply: Reply) -> EngineEvent? {
        guard let values = reply.elements, values.count % 2 == 1, let wait = values[0].number else { return nil }
        var grants: [EngineGrant] = []
        for index in stride(from: 1, to: values.count, by: 2) {
            guard let words = values[index].text?.split(separator: " "), words.count == 4,
                let key = ClusterKey(words[0]), let token = FencingToken(words[1]),
                let number = UInt8(words[2]), let priority = PriorityClass(rawValue: number),
                case .bulkString(let record) = values[index + 1], words[3] == "1" || words[3] == "0"
            else { return nil }
            let isOwn = words[3] == "1"
            grants.append(EngineGrant(key: key, token: token, priority: priority, record: isOwn ? nil : record))
        }
        return .flightsGranted(grants, opensAfterMilliseconds: wait < 0 ? nil : wait)
    }
}

extension WantAnswer.State {
    fileprivate init?(reply: Reply) {
        guard case .bulkString(let bytes) = reply else { return nil }
        switch bytes.first {
        case UInt8(ascii: "q"): self = .queued
        case UInt8(ascii: "r"): self = .running
        case UInt8(ascii: "o"): self = .held
        case UInt8(ascii: "s"): self = .stale
        case UInt8(ascii: "d"): self = .ended(Array(bytes.dropFirst()))
        default: return nil
        }
    }
}

extension Reply {
    var elements: [Reply]? { if case .array(let elements) = self { elements } else { nil } }

    var number: Int? { if case .integer(let number) = self { number } else { nil } }
}

extension EngineFault {
    /// Fault for an error reply. Only its first words are kept, since the rest may repeat arguments.
    init(error: String, isAuthentication: Bool) {
        let word = Self.sanitizedWord(error.prefix { $0 != " " })
        switch word {
        case "WRONGPASS", "NOAUTH": self = .accessDenied
        // "ERR AUTH called without any password configured", and "ERR invalid password" of old versions.
        case "ERR" where isAuthentication: self = .accessDenied
        case "NOPERM": self = .notPermitted(Self.quotedSubject(ofError: error))
        case "READONLY": self = .notPrimary
        case "LOADING", "MASTERDOWN": self = .loadingData
        case "NOREPLICAS", "OOM", "MISCONF": self = .refusesWrites(word)
        case "LOST": self = .leaseLost
        // "ERR The user executing the script can't run this command or subcommand".
        case _ where error.contains("user executing the script"): self = .notPermitted("scripts")
        default: self = .serverError(word)
        }
    }

    /// A word from the server, cut and without control characters: it reaches logs, reports and the screen.
    private static func sanitizedWord(_ word: some StringProtocol) -> String {
        let printable = word.unicodeScalars.prefix(32).filter { $0.isASCII && $0.value > 0x20 && $0.value != 0x7f }
        return String(String.UnicodeScalarView(printable))
    }

    /// `NOPERM this user has no permissions to run the 'info' command`: the quoted word, or the kind of object.
    private static func quotedSubject(ofError error: String) -> String {
        let parts = error.split(separator: "'", omittingEmptySubsequences: false)
        if parts.count >= 3 { return sanitizedWord(parts[1]) }
        return error.contains("channel") ? "channels" : "keys"
    }
}
