internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Report of a run of `earshot get`: messages and progress on standard error, lines of JSON, the list of failed URLs,
/// and the counters of its last line.
final class DownloadReport {
    private let isVerbose: Bool
    private let isQuiet: Bool
    private let writesJSON: Bool
    /// List of failed URLs for a file; nil for none.
    private let failures: FailureList?
    private(set) var tally = Tally()
    /// Progress on standard error; nil for none.
    private var progressView: ProgressView?
    /// JSON lines, written at the end of each pass; nil for none.
    private var jsonLines: LineOutput?
    private var startTime = LoopTime.readClock()

    init(_ messages: MessageOptions, json: Bool, _ failures: FailureList?) {
        isVerbose = messages.verbose
        isQuiet = messages.quiet
        writesJSON = json
        self.failures = failures
    }

    /// Begins the progress and the lines of JSON.
    ///
    /// - Parameters:
    ///   - isReserved: whether a body goes to the terminal of the progress.
    ///   - interrupt: descriptor that aborts a blocked write when it is readable.
    func begin(_ loop: EventLoop, isReserved: Bool, interrupt: Int32, _ source: ProgressView.Source) {
        startTime = loop.now
        if !isQuiet { progressView = ProgressView(loop, isReserved: isReserved, source) }
        if writesJSON { jsonLines = LineOutput(interrupt: interrupt) }
    }

    /// Ends the progress.
    func end() {
        progressView?.end()
        progressView = nil
    }

    /// Interval of reports that the progress needs, in milliseconds; nil for none.
    var progressMilliseconds: Int? { progressView?.progressMilliseconds }

    /// Erases the progress before other output.
    func clear() { progressView?.clear() }

    /// Prints a message on standard error.
    func write(_ message: String) {
        clear()
        CommandError.writeMessage(message)
    }

    // MARK: Events

    func progressed(_ progress: Progress, of item: OutputItem) {
        progressView?.progressed(progress, index: item.index, url: item.entry.url)
    }

    /// Shows the answer to `QUERY why`.
    func showWaitReason(_ json: [UInt8]) { progressView?.handleWhyAnswer(json) }

    func ended(_ request: RequestID, _ item: OutputItem, _ outcome: FetchOutcome) {
        progressView?.ended(request)
        tally.countOutcome(outcome)
        if outcome.code != nil {
            failures?.add(item.entry, name: item.name, cause: outcome.cause)
            write(outcome.sentence(verbosely: isVerbose))
        } else if isVerbose, let sentence = outcome.storedBodyNotice {
            write(sentence)
        }
        addJSONLine(item.index, outcome)
    }

    /// An existing file stays.
    ///
    /// - Parameter request: the item's request; nil without one.
    func skipped(_ request: RequestID?, _ item: OutputItem, _ reason: String, path: String?) {
        if let request { progressView?.ended(request) }
        tally.countSkip()
        if jsonLines != nil {
            addJSONLine(item.index, FetchOutcome(url: item.entry.url, path: path, skipReason: reason))
        }
    }

    private func addJSONLine(_ index: Int, _ outcome: FetchOutcome) {
        guard jsonLines != nil else { return }
        var line = JSONLine()
        line.appendMember("index", index)
        outcome.write(to: &line)
        jsonLines?.add(line.finishedLine())
    }

    /// Writes the JSON lines.
    ///
    /// - Returns: the error that stopped the output; nil for none, and for a signal, whose event follows.
    func flush() -> CommandError? {
        guard jsonLines?.isEmpty == false else { return nil }
        clear()
        jsonLines?.flush()
        return jsonLines?.writeError.flatMap { $0.status == .interrupted ? nil : $0 }
    }

    // MARK: End

    /// Whether the run writes a list of failed URLs.
    var hasFailureList: Bool { failures != nil }

    /// Adds a URL without a result to the list of failures.
    func addUnfinished(_ item: OutputItem, cause: String) {
        failures?.add(item.entry, name: item.name, cause: cause)
    }

    /// Writes the list of failures.
    func finishFailures() throws(CommandError) { try failures?.finish() }

    /// Prints the last line of a run with several URLs, and of any run on a terminal or with -v. A body from the cache
    /// is always reported, because the server may have a newer one. So is a resumed body, because the interrupted run
    /// announced that.
    func summarize(_ list: DownloadList, _ output: DownloadOutput, now: LoopTime, isInterrupted: Bool) {
        guard !isQuiet else { return }
        let (destination, arriving, files) = (output.destination, output.arrivingBodies, output.files)
        let isList = list.count > 1 || list.readsInput
        let hasStoredBytes = tally.cachedCount + tally.resumedCount > 0 && !writesJSON
        let hasParts = isInterrupted && arriving.resumableBytes + arriving.lostBytes > 0
        guard isList || isVerbose || hasStoredBytes || hasParts || ErrorStream().isTerminal && !destination.isTerminal
        else { return }
        // A single failure has its own message.
        guard isList || isInterrupted || tally.failedCount == 0 else { return }
        let isKept = arriving.resumableBytes > 0
        let repeats = isInterrupted && !list.readsInput && (isKept || isList && destination.isFolder || files.resumes)
        let isRepeatable =
            files.dependsOnExistingFiles || isKept && (tally.succeededCount == 0 || !destination.isFolder)
        let command = isRepeatable ? "the command" : "it with --no-clobber"
        let nextStep = "repeat \(command) to \(isKept ? "continue" : "fetch the rest")"
        let summary = RunSummary(
            urlCount: list.isOpen ? nil : list.count, tally: tally, replacedFileCount: destination.replacedFileCount,
            seconds: now.since(startTime) / .seconds(1), isInterrupted: isInterrupted,
            resumableBytes: arriving.resumableBytes, resumableFileCount: arriving.resumableFileCount,
            lostBytes: arriving.lostBytes, nextStep: repeats ? nextStep : nil)
        write(summary.text)
    }
}

/// Last line of a run.
struct RunSummary {
    /// Number of URLs; nil if the list was not read to its end.
    var urlCount: Int?
    var tally: Tally
    /// Number of replaced files.
    var replacedFileCount = 0
    var seconds: Double
    /// Whether a signal ended the run.
    var isInterrupted = false
    /// Number of bytes of unfinished bodies that a later run can continue.
    var resumableBytes = 0
    /// Number of bodies with these bytes.
    var resumableFileCount = 0
    /// Number of bytes of unfinished bodies that no later run could continue.
    var lostBytes = 0
    /// Next step after an interrupted run; nil for none.
    var nextStep: String?

    var text: String {
        let count = tally.succeededCount
        let kept =
            resumableBytes > 0
            ? "\(ByteSize.text(Double(resumableBytes))) of \(Self.fileCountText(resumableFileCount)) kept" : nil
        let end = nextStep.map { "; \($0)" } ?? ""
        if isInterrupted, tally.totalCount == 0, lostBytes == 0, let kept { return "interrupted: \(kept)\(end)" }
        var files = Self.fileCountText(count)
        if isInterrupted { files = "\(count) of \(urlCount.map { "\($0) files" } ?? "an unfinished list")" }
        var parts = [isInterrupted ? "interrupted: \(files)" : files]
        if tally.failedCount > 0 { parts.append("\(tally.failedCount) failed") }
        var size = "\(ByteSize.text(Double(tally.bodyBytes))) in \(TimeText.elapsed(seconds))"
        if tally.newBytes > 0, seconds >= 0.1 { size += " (\(ByteSize.text(Double(tally.newBytes) / seconds))/s)" }
        parts.append(size)
        if tally.cachedCount > 0 { parts.append("\(tally.cachedCount) from the cache") }
        if tally.sharedCount > 0 { parts.append("\(tally.sharedCount) shared") }
        if tally.resumedCount > 0 {
            let resumed = urlCount == 1 ? "" : "\(Self.fileCountText(tally.resumedCount)) "
            parts.append("continued \(resumed)at \(ByteSize.text(Double(tally.resumedBytes)))")
        }
        if tally.skippedCount > 0 { parts.append("\(tally.skippedCount) skipped") }
        if replacedFileCount > 0 { parts.append("\(replacedFileCount) replaced") }
        if let kept { parts.append(kept) }
        if lostBytes > 0 {
            parts.append("\(ByteSize.text(Double(lostBytes))) of unfinished files not kept (no strong validator)")
        }
        return parts.joined(separator: ", ") + end
    }

    private static func fileCountText(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }
}
