internal import EarshotCore
internal import EarshotWire

/// Replays a history, completely or partly, to a new core and model.
///
/// Workers' messages about an attempt are redirected to the attempt in its place, because flights have other numbers if
/// requests are omitted.
struct Replay {
    /// The n-th JOB of this content.
    struct Reference {
        var content: JobContent
        var occurrence: Int
    }

    struct Step {
        var entry: HistoryEntry
        let reference: Reference?
    }

    let limits: CoreLimits
    let canary: Canary?

    /// Determines the JOB to which each worker message refers.
    func steps(of history: [HistoryEntry]) -> [Step] {
        var trial = Trial(limits: limits, canary: canary)
        var jobs: [AttemptID: Reference] = [:]
        var occurrences: [JobContent: Int] = [:]
        return history.map { entry in
            let step = Step(entry: entry, reference: Self.attempt(in: entry.event).flatMap { jobs[$0] })
            for case .worker(.send(_, .job(let job))) in (try? trial.handleEvent(entry.event, now: entry.now)) ?? [] {
                let content = JobContent(method: job.method, url: job.url, fields: job.httpFields)
                let occurrence = occurrences[content, default: 0]
                jobs[job.attempt] = Reference(content: content, occurrence: occurrence)
                occurrences[content] = occurrence + 1
            }
            return step
        }
    }

    /// Violation found in a history.
    struct Finding {
        var violation: Violation
        /// Number of steps up to it.
        var stepCount: Int
        /// Events passed to the core in them.
        var deliveredEvents: [HistoryEntry]
    }

    /// Replays all steps.
    /// - Returns: nil without a violation.
    func finding(in steps: [Step]) -> Finding? {
        var trial = Trial(limits: limits, canary: canary, progressPeriod: steps.count > 5_000 ? 64 : 1)
        var assigned: [JobContent: [(AttemptID, WorkerID)]] = [:]
        var delivered: [HistoryEntry] = []
        var spilled: Set<BodyID> = []
        for (index, step) in steps.enumerated() {
            var event = step.entry.event
            // A write that was not requested cannot fail.
            if case .spillFailed(let body) = event, spilled.remove(body) == nil { continue }
            if let reference = step.reference {
                guard let jobs = assigned[reference.content],
                    let job = jobs.dropFirst(reference.occurrence).first ?? jobs.last
                else { continue }
                event = Self.retargetedEvent(event, about: job.0, by: job.1)
            }
            // The shell would pass it later.
            if let id = event.sender, trial.broker.core.hasPendingRemoval(by: id) { continue }
            delivered.append(HistoryEntry(now: step.entry.now, event: event))
            do throws(Violation) {
                for action in try trial.handleEvent(event, now: step.entry.now) {
                    if case .spool(.spillBody(let body, _)) = action { spilled.insert(body) }
                    guard case .worker(.send(let worker, .job(let job))) = action else { continue }
                    let content = JobContent(method: job.method, url: job.url, fields: job.httpFields)
                    assigned[content, default: []].append((job.attempt, worker))
                }
                // A violation found by the periodic audit in the whole history is found at the end of a part.
                if index == steps.count - 1 { try trial.audit() }
            } catch {
                return Finding(violation: error, stepCount: index + 1, deliveredEvents: delivered)
            }
        }
        return nil
    }

    private static func attempt(in event: BrokerEvent) -> AttemptID? {
        guard case .workerSent(_, let message, _) = event else { return nil }
        switch message {
        case .completed(let completion): return completion.attempt
        case .failed(let attempt, _, _, _, _, _, _, _), .progress(let attempt, _, _, _, _): return attempt
        case .ready, .slots, .sandbox, .pong, .bye: return nil
        }
    }

    private static func retargetedEvent(_ event: BrokerEvent, about attempt: AttemptID, by worker: WorkerID)
        -> BrokerEvent
    {
        guard case .workerSent(_, let message, let body) = event else { return event }
        switch message {
        case .completed(var completion):
            completion.attempt = attempt
            return .workerSent(worker, .completed(completion), body)
        case .failed(_, let code, let detail, let received, let unwanted, let part, let repeats, let retryAfter):
            let renumbered = WorkerMessage.failed(
                attempt, code: code, detail: detail, receivedBytes: received, unwantedBytes: unwanted, part: part,
                repeats: repeats, retryAfterSeconds: retryAfter)
            return .workerSent(worker, renumbered, body)
        case .progress(_, let received, let total, let part, let checkpoint):
            let renumbered = WorkerMessage.progress(
                attempt, received: received, total: total, part: part, checkpoint: checkpoint)
            return .workerSent(worker, renumbered, body)
        case .ready, .slots, .sandbox, .pong, .bye: return event
        }
    }
}
