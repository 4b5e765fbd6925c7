internal import EarshotCore
internal import EarshotWire

/// Codes with the cluster's secret on the entries that nodes write for one another: records of flights, and results of
/// attempts with the places of their bodies.
///
/// ```
/// CODE RECORD            code of the flight's key and the record
/// CODE TOKEN RESULT      code of the flight's key, the attempt's token and the result
/// ```
///
/// So an engine, or a stranger with access to it, can neither make an entry nor move one to another flight or attempt.
/// It can repeat one. A result is therefore refused unless its attempt is younger than the latest one that this node
/// knows of the flight.
struct EngineSeals {
    /// Kinds of entries, whose codes differ.
    private enum Kind: String {
        case record
        case result
    }

    /// Latest attempts of a flight that are known: those with the engine, and those without.
    private struct Latest {
        var orderedToken: FencingToken?
        var random: FencingToken?
    }

    /// Flights whose latest attempt is known, in each of two tables. The older one is dropped when the younger one is full.
    private static let mostKnown = 32_768
    private static let codeBytes = 32
    private static let blank = UInt8(ascii: " ")
    /// Largest token of an attempt that began without the engine. Such tokens have no order.
    private static let lastRandomToken = FencingToken(FencingToken.uncoordinated.upperBound)

    private let keys: ClusterKeys
    private var youngerAttempts: [ClusterKey: Latest] = [:]
    private var olderAttempts: [ClusterKey: Latest] = [:]
    private var hasForgery = false

    init(_ keys: ClusterKeys) { self.keys = keys }

    /// Whether the engine had an entry since the last call that no node has written.
    mutating func takeForgery() -> Bool {
        defer { hasForgery = false }
        return hasForgery
    }

    // MARK: Calls

    /// The call with codes on its entries.
    mutating func sealed(_ call: EngineCall) -> EngineCall {
        switch call {
        case .want(let wants):
            return .want(
                wants.map { want in
                    var want = want
                    if !want.record.isEmpty { want.record = sealed(.record, want.record, of: want.key) }
                    return want
                })
        case .done(let completions):
            var ends = completions
            for (index, completion) in completions.enumerated() {
                switch completion.outcome {
                case .result(let result) where !result.isEmpty:
                    ends[index].outcome = .result(sealed(result, completion))
                case .kept(let result, let age):
                    ends[index].outcome = .kept(sealed(result, completion), ageMilliseconds: age)
                case .result, .released: break
                }
            }
            return .done(ends)
        case .unwant, .take, .takeWanted, .cool, .survey, .retire, .leave: return call
        }
    }

    /// The result of an attempt with its code.
    private mutating func sealed(_ result: [UInt8], _ completion: EngineCompletion) -> [UInt8] {
        noteToken(completion.token, of: completion.key)
        return sealed(.result, Array("\(completion.token) ".utf8) + result, of: completion.key)
    }

    // MARK: Events

    /// The event without codes. An entry with a wrong code is empty, which nothing can use. A notification with one only
    /// says that the flight has changed.
    mutating func unsealed(_ event: EngineEvent) -> EngineEvent {
        switch event {
        case .granted(var grants, let opens):
            for index in grants.indices {
                guard let record = grants[index].record else { continue }
                grants[index].record = open(.record, record, of: grants[index].key) ?? []
            }
            return .granted(grants, opensAfterMilliseconds: opens)
        case .wanted(var answers):
            for index in answers.indices {
                guard case .ended(let entry) = answers[index].state else { continue }
                answers[index].state = .ended(result(entry, of: answers[index].key) ?? [])
            }
            return .wanted(answers)
        case .result(let key, let entry):
            guard let result = result(entry, of: key) else { return .unusable(key) }
            return .result(key, result)
        case .joined, .members, .left, .warning, .remedied, .ended, .cooled, .surveyed, .workWaits, .aborted,
            .messagesLost, .unusable:
            return event
        }
    }

    /// Result of an entry that a node has written for this flight, and that this node has not had before.
    private mutating func result(_ entry: [UInt8], of key: ClusterKey) -> [UInt8]? {
        guard let opened = open(.result, entry, of: key), let end = opened.firstIndex(of: Self.blank),
            let token = FencingToken(String(decoding: opened[..<end], as: UTF8.self)), noteToken(token, of: key)
        else { return nil }
        return Array(opened[(end + 1)...])
    }

    /// Bytes behind a code; nil if it is not that of these bytes and this flight.
    private mutating func open(_ kind: Kind, _ bytes: [UInt8], of key: ClusterKey) -> [UInt8]? {
        let rest = Array(bytes.dropFirst(Self.codeBytes + 1))
        // Two numbers are compared in the same time wherever they differ.
        guard bytes.count > Self.codeBytes, bytes[Self.codeBytes] == Self.blank,
            ClusterKey(String(decoding: bytes.prefix(Self.codeBytes), as: UTF8.self)) == code(kind, key, rest)
        else {
            hasForgery = true
            return nil
        }
        return rest
    }

    // MARK: Codes

    private func code(_ kind: Kind, _ key: ClusterKey, _ bytes: [UInt8]) -> ClusterKey {
        keys.code(of: kind.rawValue, Array(key.description.utf8) + bytes)
    }

    /// Bytes behind their code for a flight.
    private func sealed(_ kind: Kind, _ bytes: [UInt8], of key: ClusterKey) -> [UInt8] {
        Array("\(code(kind, key, bytes)) ".utf8) + bytes
    }

    /// Notes an attempt of a flight as its latest one.
    ///
    /// - Returns: whether it is younger than the one that was known.
    @discardableResult
    private mutating func noteToken(_ token: FencingToken, of key: ClusterKey) -> Bool {
        var latest = youngerAttempts[key] ?? olderAttempts[key] ?? Latest()
        if token > Self.lastRandomToken {
            if let known = latest.orderedToken, token <= known { return false }
            latest.orderedToken = token
        } else {
            guard token != latest.random else { return false }
            latest.random = token
        }
        if youngerAttempts.count >= Self.mostKnown { (olderAttempts, youngerAttempts) = (youngerAttempts, [:]) }
        youngerAttempts[key] = latest
        return true
    }
}
