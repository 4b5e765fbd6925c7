internal import EarshotClient

/// List of the requests that `earshot get` would send.
struct DryRun {
    let method: String
    /// Single output file; nil for a directory or standard output.
    let file: String?
    let directory: String?
    let names: OutputNames
    let tellsJSON: Bool

    /// Prints a line for each valid URL and a message for each malformed one.
    func print(_ entries: [ListEntry], verbosely: Bool) throws(Complaint) -> ExitStatus {
        var names = names
        var lines = LineOutput()
        var tally = Tally()
        for (index, entry) in entries.enumerated() {
            let url = entry.url
            guard let sent = URLText.wire(url) else {
                let outcome = FetchOutcome(malformed: url)
                Complaint.say(outcome.sentence(verbosely: verbosely))
                tally.count(outcome)
                continue
            }
            let path = directory.map { "\($0)/\(names.late(entry, index: index + 1, nil))" } ?? file
            if tellsJSON {
                var line = JSONLine()
                line.member("method", method)
                line.member("url", sent)
                line.member("path", path)
                lines.add(line.finished())
            } else {
                lines.add(Array("\(method) \(sent)\(path.map { " -> \($0)" } ?? "")\n".utf8))
            }
            tally.countSuccesses(1)
        }
        try lines.finish()
        return tally.status
    }
}
