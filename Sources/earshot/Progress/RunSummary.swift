/// Last line of a run.
struct RunSummary {
    /// Number of URLs; nil if the list was not read to its end.
    var known: Int?
    var tally: Tally
    /// Number of replaced files.
    var replaced = 0
    var seconds: Double
    /// Whether a signal ended the run.
    var isInterrupted = false
    /// Number of bytes of unfinished bodies that a later run can continue.
    var keptBytes = 0
    /// Number of bodies with these bytes.
    var keptFiles = 0
    /// Number of bytes of unfinished bodies that no later run could continue.
    var lostBytes = 0
    /// Next step after an interrupted run; nil for none.
    var nextStep: String?

    var text: String {
        let count = tally.succeeded
        let kept = keptBytes > 0 ? "\(ByteSize.text(Double(keptBytes))) of \(Self.files(keptFiles)) kept" : nil
        let end = nextStep.map { "; \($0)" } ?? ""
        if isInterrupted, tally.total == 0, lostBytes == 0, let kept { return "interrupted: \(kept)\(end)" }
        var files = Self.files(count)
        if isInterrupted { files = "\(count) of \(known.map { "\($0) files" } ?? "an unfinished list")" }
        var parts = [isInterrupted ? "interrupted: \(files)" : files]
        if tally.failed > 0 { parts.append("\(tally.failed) failed") }
        var size = "\(ByteSize.text(Double(tally.bytes))) in \(TimeText.elapsed(seconds))"
        if tally.newBytes > 0, seconds >= 0.1 { size += " (\(ByteSize.text(Double(tally.newBytes) / seconds))/s)" }
        parts.append(size)
        if tally.cached > 0 { parts.append("\(tally.cached) from the cache") }
        if tally.shared > 0 { parts.append("\(tally.shared) shared") }
        if tally.resumed > 0 {
            let resumed = known == 1 ? "" : "\(Self.files(tally.resumed)) "
            parts.append("continued \(resumed)at \(ByteSize.text(Double(tally.resumedBytes)))")
        }
        if tally.skipped > 0 { parts.append("\(tally.skipped) skipped") }
        if replaced > 0 { parts.append("\(replaced) replaced") }
        if let kept { parts.append(kept) }
        if lostBytes > 0 {
            parts.append("\(ByteSize.text(Double(lostBytes))) of unfinished files not kept (no strong validator)")
        }
        return parts.joined(separator: ", ") + end
    }

    private static func files(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }
}
