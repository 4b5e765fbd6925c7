internal import EarshotClient

/// List of the requests that `earshot get` would send.
struct DryRun {
    let method: String
    /// Single output file; nil for a directory or standard output.
    let file: String?
    let directory: String?
    /// Names of the files in the directory.
    var outputNames: OutputNames
    let printsJSON: Bool

    /// Prints a line for each valid URL, and a message for each malformed one and each invalid option of a list.
    ///
    /// - Parameter verbosely: whether the lines contain complete URLs, including parts that may be secret. JSON does.
    consuming func print(_ entries: [ListEntry], verbosely: Bool) throws(CommandError) -> ExitStatus {
        var lines = LineOutput()
        var tally = Tally()
        for (index, entry) in entries.enumerated() {
            if let outcome = RequestTemplate.rejectionOutcome(of: entry) {
                CommandError.writeMessage(outcome.sentence(verbosely: verbosely))
                tally.countOutcome(outcome)
                continue
            }
            // A name that depends on the response is unknown.
            let path =
                directory.map { "\($0)/\(outputNames.pathBeforeResponse(entry, index: index + 1) ?? "")" } ?? file
            if printsJSON {
                var line = JSONLine()
                line.appendMember("method", method)
                line.appendMember("url", URLText.wireForm(entry.url))
                line.appendMember("path", path)
                lines.add(line.finishedLine())
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
