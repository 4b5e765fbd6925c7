internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// Step of a plan: an action of a ``PlannedClient`` with its time.
///
/// `MS request NAME HANDLER URL [FIELD=VALUE]…`, `MS cancel NAME`, `MS remove PATTERN`, `MS watch PATTERN`, `MS unwatch
/// PATTERN`. A name identifies one request in the whole run; it serves as request ID.
struct PlanStep {
    enum Action {
        /// `hold`: delay before a body file is read.
        case submit(Fetch, hold: Duration)
        case cancel(RequestID)
        case remove(HandlerPattern)
        case watch(HandlerPattern)
        case unwatch(HandlerPattern)
    }

    /// Delay after the client's start.
    let delay: Duration
    let action: Action

    /// - Throws: `ValidationError` for an invalid line.
    init(_ line: Substring) throws {
        let words = line.split(separator: " ")
        guard words.count >= 3, let milliseconds = Int(words[0]),
            let action = Self.parseAction(words[1], words.dropFirst(2))
        else {
            throw ValidationError("not a step of a plan: \(line)")
        }
        delay = .milliseconds(milliseconds)
        self.action = action
    }

    private static func parseAction(_ verb: Substring, _ words: ArraySlice<Substring>) -> Action? {
        let first = String(words.first ?? "")
        switch verb {
        case "request": return parseSubmission(Array(words))
        case "cancel": return RequestID(first).map { .cancel($0) }
        case "remove": return HandlerPattern(first).map { .remove($0) }
        case "watch": return HandlerPattern(first).map { .watch($0) }
        case "unwatch": return HandlerPattern(first).map { .unwatch($0) }
        default: return nil
        }
    }

    /// Parses a request with the decoder of the protocol, which also defines its fields.
    private static func parseSubmission(_ words: [Substring]) -> Action? {
        guard words.count >= 3 else { return nil }
        var hold = Duration.zero
        var head = "FETCH \(words[1]) \(words[0]) \(words[2])\ntag: \(words[0])\n"
        for word in words.dropFirst(3) {
            let parts = word.split(separator: "=", maxSplits: 1)
            guard parts.count == 2 else { return nil }
            if parts[0] == "hold" {
                hold = .milliseconds(Int(parts[1]) ?? 0)
            } else {
                head += "\(parts[0]): \(parts[1])\n"
            }
        }
        guard case .fetch(let fetch)? = try? ClientMessage(head: Array(head.utf8)) else { return nil }
        return .submit(fetch, hold: hold)
    }
}
