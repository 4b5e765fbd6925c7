internal import EarshotCore
internal import EarshotLoop

/// Children that die soon after each start: told once in the log, and to whoever asks for the broker's status.
extension Supervisor {
    /// A child has ended, or could not be started, that nobody wanted to end.
    ///
    /// - Parameter cause: what happened, a sentence about `post`'s child.
    /// - Returns: how long the post stays empty.
    func died(_ post: Post, after lived: Duration, _ cause: String) -> Duration {
        let wasFailing = post.rule.isFailing
        let pause = post.rule.lifeEnded(after: lived, using: &generator)
        if post.rule.quickDeaths == 0 {
            post.dyingSince = nil
        } else if post.dyingSince == nil {
            post.dyingSince = CalendarTime.now()
        }
        if post.rule.isFailing {
            if !wasFailing {
                Complaint.say(
                    "\(cause), as \(post.rule.quickDeaths) times in a row: trying more and more seldom, and saying no more"
                        + " of it until one lives for \(RestartRule.goodLife)")
            }
            tellFailures()
        } else {
            if wasFailing { tellFailures() }
            let milliseconds = Int((pause / .milliseconds(1)).rounded())
            Complaint.say(cause + ", starting another" + (milliseconds == 0 ? "" : " in \(milliseconds) ms"))
        }
        return pause
    }

    /// A child of a post that has failed is watched for a good life.
    func watchForGoodLife(_ post: Post) {
        guard post.rule.quickDeaths > 0 else { return }
        post.goodLife = loop.setTimer(after: RestartRule.goodLife) { [unowned self] in
            post.goodLife = nil
            let wasFailing = post.rule.isFailing
            post.rule.livesWell()
            post.dyingSince = nil
            guard wasFailing else { return }
            Complaint.say("\(post.role.name) lives again")
            tellFailures()
        }
    }

    /// The posts that fail, as the broker and its clients are told of them.
    var failures: [ChildFailure] {
        posts.filter { $0.rule.isFailing && !$0.isLeaving }.map { post in
            ChildFailure(
                role: post.role == .broker ? "broker" : "worker", deaths: post.rule.quickDeaths,
                since: post.dyingSince ?? "-", lastEnd: post.lastExit.map { "\($0)" } ?? "not started")
        }
    }

    /// Tells the broker all of them, unless what it was told last still waits for it; and leaves word in the runtime
    /// folder where there may be no broker to tell of it.
    func tellFailures() {
        tellService()
        let failures = failures
        let report = FailureReport(plan.folder)
        if failures.contains(where: { $0.role == "broker" }) { report.write(failures) } else { report.remove() }
        guard let channel else { return }
        owesFailures = channel.hasBacklog
        guard !owesFailures else { return }
        channel.send(failures.map(\.line) + [ChildFailure.end])
    }
}
