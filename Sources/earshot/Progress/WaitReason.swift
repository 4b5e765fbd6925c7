internal import EarshotClient

/// Reason why a request waits, from the broker's answer to `QUERY why`.
enum WaitReason {
    /// Returns one line such as `waiting 24 s: http://h answered 429 or 503`. Nil for a request that does not wait.
    ///
    /// - Parameter idle: time without any progress.
    static func text(_ answer: JSONValue, idle: Double) -> String? {
        guard let state = answer.member("state")?.text, state != "unknown" else { return nil }
        guard let wait = answer.member("waits-for")?.text else {
            guard state == "running" else { return nil }
            return "waiting: no data from the server for \(Int(idle)) s"
        }
        let origin = answer.member("origin")?.text ?? "its origin"
        switch wait {
        case "cool-down": return "waiting\(pause(answer, "cooling-ms")): \(origin) answered 429 or 503"
        case "retry": return "waiting\(pause(answer, "retry-in-ms")): an attempt failed, and is repeated"
        case "spacing": return "waiting\(pause(answer, "starts-in-ms")): spacing of transfers from \(origin)"
        case "origin":
            guard let running = answer.number("running"),
                let limit = answer.number("limit")
            else { break }
            guard running < limit else { return "waiting: \(running) of \(limit) transfers from \(origin) run" }
            return "waiting: \(running) of \(limit) transfers run, and the last is reserved for class high"
        default: break
        }
        return "waiting: " + (answer.member("reason")?.text ?? wait)
    }

    /// The remaining time in whole seconds, with a leading space; empty if it is unknown.
    private static func pause(_ answer: JSONValue, _ member: String) -> String {
        guard let milliseconds = answer.member(member)?.text.flatMap({ Int($0) }) else { return "" }
        return " \((max(0, milliseconds) + 999) / 1000) s"
    }
}
