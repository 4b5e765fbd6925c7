internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// End of a run of `earshot get`: an interruption, the parts and the list of failures that stay, and the last line.
extension GetRun {
    /// Removes the pending requests at the first signal and awaits the answer. A second signal ends the run at once.
    func interrupted() {
        guard let session else { return }
        guard !isInterrupted else { return session.end(Complaint(.interrupted)) }
        isInterrupted = true
        if isShared {
            // Requests of other programs under the handler stay, and may be durable.
            unansweredCancels = underWay.count
            isRemoved = underWay.isEmpty
            for request in underWay.keys { session.connection.cancel(RequestKey(handler, request)) }
        } else {
            session.connection.remove(.handler(handler))
        }
        session.loop.setTimer(after: GetRun.farewell) { session.end(Complaint(.interrupted)) }
    }

    /// Keeps the bytes of the bodies that have not ended.
    func keepParts() {
        arriving.isPulling = session?.connection.isPulling ?? false
        for (request, item) in underWay { arriving.keep(request, item, in: &destination) }
    }

    /// Writes the list of failures. It includes the URLs without a result, after an early end.
    func saveFailures() throws(Complaint) {
        guard let failures else { return }
        for item in underWay.values.sorted(by: { $0.index < $1.index }) {
            failures.add(item.entry, name: item.name, cause: "the run ended before the result")
        }
        var rest = lanes?.waitingItems ?? []
        while next < urls.count { rest.append(listItem()) }
        for item in rest where !files.noClobber || destination.existing(item.name) == nil {
            failures.add(item.entry, name: item.name, cause: Self.unrequested)
        }
        try failures.finish()
    }

    /// Prints the last line of a run with several URLs, and of any run on a terminal or with -v. A body from the cache
    /// is always reported, because the server may have a newer one. So is a resumed body, because the interrupted run
    /// announced that.
    func summarize(seconds: Double) {
        let isList = known > 1 || readsInput
        let hasStoredBytes = tally.cached + tally.resumed > 0 && !tellsJSON
        let hasParts = isInterrupted && arriving.keptBytes + arriving.lostBytes > 0
        guard isList || isVerbose || hasStoredBytes || hasParts || ErrorStream().isTerminal && !destination.isTerminal
        else { return }
        // A single failure has its own message.
        guard isList || isInterrupted || tally.failed == 0 else { return }
        let isKept = arriving.keptBytes > 0
        let repeats = isInterrupted && !readsInput && (isKept || isList && destination.isFolder || files.resumes)
        let isRepeatable = files.regardsExisting || isKept && (tally.succeeded == 0 || !destination.isFolder)
        let command = isRepeatable ? "the command" : "it with --no-clobber"
        let nextStep = "repeat \(command) to \(isKept ? "continue" : "fetch the rest")"
        view?.clear()
        Complaint.say(
            RunSummary(
                known: isListing ? nil : known, tally: tally, replaced: destination.replaced, seconds: seconds,
                isInterrupted: isInterrupted, keptBytes: arriving.keptBytes, keptFiles: arriving.keptFiles,
                lostBytes: arriving.lostBytes, nextStep: repeats ? nextStep : nil
            ).text)
    }
}
