internal import EarshotClient

/// List of the requests that `earshot get` would send.
struct DryRun {
    let method: String
    /// Single output file; nil for a directory or standard output.
    let file: String?
    let directory: String?
    /// Names of the files in the directory.
    var names: OutputNames
    let printsJSON: Bool

    /// Prints a line for each valid URL, and a message for each malformed one and each invalid option of a list.
    ///
    /// - Parameter verbosely: whether the lines contain complete URLs, including parts that may be secret. JSON does.
    consuming func print(_ entries: [ListEntry], verbosely: Bool) throws(CommandError) -> ExitStatus {
        var lines = LineOutput()
        var tally = Tally()
        for (index, entry) in entries.enumerated() {
            guard entry.fault == nil, let sent = URLText.wire(entry.url) else {
                let outcome =
                    entry.fault.map { FetchOutcome(url: entry.url, code: FetchOutcome.badOption, detail: $0) }
                    ?? FetchOutcome(malformed: entry.url)
                CommandError.writeMessage(outcome.sentence(verbosely: verbosely))
                tally.count(outcome)
                continue
            }
            // A name that depends on the response is unknown.
            let path = directory.map { "\($0)/\(names.pathBeforeResponse(entry, index: index + 1) ?? "")" } ?? file
            if printsJSON {
                var line = JSONLine()
                line.member("method", method)
                line.member("url", sent)
                line.member("path", path)
                lines.add(line.finished())
            } else {
                let shown = TerminalText.escaped(verbosely ? entry.url : URLText.redacted(entry.url))
                lines.add(Array("\(method) \(shown)\(path.map { " -> \($0)" } ?? "")\n".utf8))
            }
            tally.countSuccesses(1)
        }
        try lines.finish()
        return tally.status
    }
}
