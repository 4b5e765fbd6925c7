internal import EarshotCore

/// Parser for the messages of a node's channel, which `EngineSession` receives from the engine.
enum EngineNotification {
    /// Events of one message; nil if it is malformed.
    ///
    /// ```
    /// w                                    work waits
    /// x KEY TOKEN                          abort
    /// c ORIGIN MILLISECONDS STRIKES        cool-down
    /// r KEY LENGTH RESULT, repeated        results
    /// ```
    static func events(_ message: [UInt8]) -> [EngineEvent]? {
        guard message.first != UInt8(ascii: "r") else { return resultEvents(message[...]) }
        let words = String(decoding: message, as: UTF8.self).split(separator: " ", omittingEmptySubsequences: false)
        switch (words.first, words.count) {
        case ("w", 1): return [.workWaits]
        case ("x", 3):
            guard let key = ClusterKey(words[1]), let token = FencingToken(words[2]) else { return nil }
            return [.attemptAborted(key, token)]
        case ("c", 4):
            guard let origin = ClusterKey(words[1]), let rest = Int(words[2]), let strikes = Int(words[3]), rest >= 0,
                strikes >= 0
            else { return nil }
            return [.cooled(CoolDownNotice(origin: origin, remainingMilliseconds: rest, refusalsInRow: strikes))]
        default: return nil
        }
    }

    private static func resultEvents(_ message: ArraySlice<UInt8>) -> [EngineEvent]? {
        var events: [EngineEvent] = []
        var rest = message
        while !rest.isEmpty {
            guard takeWord(from: &rest) == "r", let key = takeWord(from: &rest).flatMap({ ClusterKey($0) }),
                let length = takeWord(from: &rest).flatMap({ Int($0) }), (0...rest.count).contains(length)
            else { return nil }
            events.append(.resultReceived(key, Array(rest.prefix(length))))
            rest = rest.dropFirst(length)
        }
        return events
    }

    /// Takes a word and the blank that ends it.
    private static func takeWord(from rest: inout ArraySlice<UInt8>) -> String? {
        guard let end = rest.firstIndex(of: UInt8(ascii: " ")) else { return nil }
        defer { rest = rest[(end + 1)...] }
        return String(decoding: rest[..<end], as: UTF8.self)
    }
}
