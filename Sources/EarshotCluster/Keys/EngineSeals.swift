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
    private struct LatestTokens {
        var engineToken: FencingToken?
        var uncoordinatedToken: FencingToken?
    }

    /// Flights whose latest attempt is known, in each of two tables. The older one is dropped when the younger one is
    /// full.
    private static let maximumKnownFlights = 32_768
    private static let authenticationCodeBytes = 32
    private static let blank = UInt8(ascii: " ")
    /// Largest token of an attempt that began without the engine. Such tokens have no order.
    private static let lastRandomToken = FencingToken(FencingToken.uncoordinated.upperBound)

    private let keys: ClusterKeys
    private var recentLatestTokens: [ClusterKey: LatestTokens] = [:]
    private var olderLatestTokens: [ClusterKey: LatestTokens] = [:]
    private var hasForgery = false

    init(_ keys: ClusterKeys) { self.keys = keys }

    /// Whether the engine had an entry that no node has written, since the last call.
    mutating func takeForgeryFlag() -> Bool {
        defer { hasForgery = false }
        return hasForgery
    }

    // MARK: Calls

    /// The call with codes on its entries.
    mutating func sealedCall(_ call: EngineCall) -> EngineCall {
        switch call {
        case .wantFlights(let wants):
            var sealedWants = wants
            for (index, want) in wants.enumerated() where !want.record.isEmpty {
                sealedWants[index].record = sealedBytes(kind: .record, bytes: want.record, of: want.key)
            }
            return .wantFlights(sealedWants)
        case .reportCompletions(let completions):
            var sealedCompletions = completions
            for (index, completion) in completions.enumerated() {
                switch completion.outcome {
                case .result(let result) where !result.isEmpty:
                    sealedCompletions[index].outcome = .result(sealedResult(result, completion: completion))
                case .lateResult(let result, let age):
                    let sealed = sealedResult(result, completion: completion)
                    sealedCompletions[index].outcome = .lateResult(sealed, ageMilliseconds: age)
                case .result, .released: break
                }
            }
            return .reportCompletions(sealedCompletions)
        case .withdrawWants, .takeFlights, .takeWantedFlights, .reportRefusal, .survey, .retireMembership,
            .leaveCluster:
            return call
        }
    }

    /// The result of an attempt with its code.
    private mutating func sealedResult(_ result: [UInt8], completion: EngineCompletion) -> [UInt8] {
        recordToken(completion.token, of: completion.key)
        return sealedBytes(kind: .result, bytes: Array("\(completion.token) ".utf8) + result, of: completion.key)
    }

    // MARK: Events

    /// The event without codes. An entry with a wrong code becomes empty, which nothing can use. A notification with a
    /// wrong code only reports that the flight has changed.
    mutating func unsealedEvent(_ event: EngineEvent) -> EngineEvent {
        switch event {
        case .flightsGranted(var grants, let opens):
            for index in grants.indices {
                guard let record = grants[index].record else { continue }
                grants[index].record = verifiedBytes(kind: .record, bytes: record, of: grants[index].key) ?? []
            }
            return .flightsGranted(grants, opensAfterMilliseconds: opens)
        case .wantsAnswered(var answers):
            for index in answers.indices {
                guard case .ended(let entry) = answers[index].state else { continue }
                answers[index].state = .ended(verifiedResult(entry, of: answers[index].key) ?? [])
            }
            return .wantsAnswered(answers)
        case .resultReceived(let key, let entry):
            guard let result = verifiedResult(entry, of: key) else { return .unusableResult(key) }
            return .resultReceived(key, result)
        case .joined, .members, .left, .warning, .remedied, .completionsAnswered, .cooled, .surveyed, .workWaits,
            .attemptAborted, .messagesLost, .unusableResult:
            return event
        }
    }

    /// Result of an entry that a node has written for this flight, and that this node has not had before.
    private mutating func verifiedResult(_ entry: [UInt8], of key: ClusterKey) -> [UInt8]? {
        guard let opened = verifiedBytes(kind: .result, bytes: entry, of: key),
            let end = opened.firstIndex(of: Self.blank),
            let token = FencingToken(String(decoding: opened[..<end], as: UTF8.self)), recordToken(token, of: key)
        else { return nil }
        return Array(opened[(end + 1)...])
    }

    /// Bytes behind a code; nil if it is not that of these bytes and this flight.
    private mutating func verifiedBytes(kind: Kind, bytes: [UInt8], of key: ClusterKey) -> [UInt8]? {
        let rest = Array(bytes.dropFirst(Self.authenticationCodeBytes + 1))
        // Two numbers are compared in the same time wherever they differ.
        guard bytes.count > Self.authenticationCodeBytes, bytes[Self.authenticationCodeBytes] == Self.blank,
            ClusterKey(String(decoding: bytes.prefix(Self.authenticationCodeBytes), as: UTF8.self))
                == authenticationCode(kind: kind, key: key, bytes: rest)
        else {
            hasForgery = true
            return nil
        }
        return rest
    }

    // MARK: Codes

    private func authenticationCode(kind: Kind, key: ClusterKey, bytes: [UInt8]) -> ClusterKey {
        keys.authenticationCode(ofKind: kind.rawValue, entry: Array(key.description.utf8) + bytes)
    }

    /// Bytes behind their code for a flight.
    private func sealedBytes(kind: Kind, bytes: [UInt8], of key: ClusterKey) -> [UInt8] {
        Array("\(authenticationCode(kind: kind, key: key, bytes: bytes)) ".utf8) + bytes
    }

    /// Notes an attempt of a flight as its latest one.
    ///
    /// - Returns: whether it is younger than the one that was known.
    @discardableResult
    private mutating func recordToken(_ token: FencingToken, of key: ClusterKey) -> Bool {
        var latest = recentLatestTokens[key] ?? olderLatestTokens[key] ?? LatestTokens()
        if token > Self.lastRandomToken {
            if let known = latest.engineToken, token <= known { return false }
            latest.engineToken = token
        } else {
            guard token != latest.uncoordinatedToken else { return false }
            latest.uncoordinatedToken = token
        }
        if recentLatestTokens.count >= Self.maximumKnownFlights {
            (olderLatestTokens, recentLatestTokens) = (recentLatestTokens, [:])
        }
        recentLatestTokens[key] = latest
        return true
    }
}
