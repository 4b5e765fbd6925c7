/// Progress of a run of `earshot get` as lines of text, which `ProgressView` shows.
struct ProgressText {
    /// Size of the terminal in characters.
    var columns: Int
    var rows: Int
    var hasColor: Bool

    /// Minimum width of a bar.
    private static let leastBar = 10
    /// Maximum width of a bar.
    private static let mostBar = 40
    /// Maximum width of a name in the list of transfers.
    private static let mostName = 60

    /// Lines for a terminal, each narrower than it. At most `rows - 1`.
    func lines(_ snapshot: RunSnapshot) -> [String] {
        var lines: [String] = []
        if snapshot.urlCount == 1, !snapshot.isListing {
            if let transfer = snapshot.transfers.first { lines.append(transferLine(transfer, snapshot)) }
        } else {
            lines.append(header(snapshot))
        }
        if let waiting = snapshot.waiting {
            lines.append(colored(ColumnText.shortened(waiting, to: columns - 1), "33"))
        }
        guard snapshot.urlCount > 1 || snapshot.isListing else { return lines }
        let room = max(0, rows - 1 - lines.count)
        let isCut = snapshot.transfers.count > room
        let shown = snapshot.transfers.prefix(isCut ? max(0, room - 1) : room)
        let width = nameWidth(shown)
        lines += shown.map { line($0, nameWidth: width) }
        if isCut, room > 0 {
            lines.append(
                ColumnText.shortened("  and \(snapshot.transfers.count - shown.count) more", to: columns - 1))
        }
        return lines
    }

    /// Line for a log.
    static func plain(_ snapshot: RunSnapshot) -> String {
        var parts: [String]
        if snapshot.urlCount == 1, !snapshot.isListing {
            guard let transfer = snapshot.transfers.first else { return snapshot.waiting ?? "nothing received yet" }
            parts = [
                [transfer.name, percent(transfer), size(transfer)].compactMap(\.self).joined(separator: " ")
            ]
        } else {
            parts = [fileCounts(snapshot) + " files"]
            if snapshot.tally.failed > 0 { parts.append("\(snapshot.tally.failed) failed") }
            parts.append(ByteSize.text(snapshot.bytes))
        }
        parts += rates(snapshot)
        if let waiting = snapshot.waiting { parts.append(waiting) }
        return parts.joined(separator: ", ")
    }

    // MARK: Lines

    private func transferLine(_ transfer: RunSnapshot.Transfer, _ snapshot: RunSnapshot) -> String {
        let percent = Self.percent(transfer)
        let figures = ([percent, Self.size(transfer)].compactMap(\.self) + Self.rates(snapshot)).joined(separator: "  ")
        let nameRoom = columns - 1 - figures.utf8.count - 2
        let name = ColumnText.shortened(transfer.name, to: max(0, min(nameRoom, ColumnText.width(transfer.name))))
        let barRoom = nameRoom - ColumnText.width(name) - 4
        let line = name.isEmpty ? figures : "\(name)  \(figures)"
        guard let total = transfer.total, total > 0, barRoom >= Self.leastBar else {
            return ColumnText.shortened(line, to: columns - 1)
        }
        let fraction = Double(transfer.received) / Double(total)
        return "\(name)  \(bar(fraction, min(barRoom, Self.mostBar)))  \(figures)"
    }

    private func header(_ snapshot: RunSnapshot) -> String {
        let tally = snapshot.tally
        var parts = [Self.fileCounts(snapshot) + " files"]
        if tally.failed > 0 { parts.append("\(tally.failed) failed") }
        parts.append(ByteSize.text(snapshot.bytes))
        parts += Self.rates(snapshot)
        if tally.cached > 0 { parts.append("\(tally.cached) cached") }
        let line = parts.joined(separator: "  ")
        let room = columns - 1 - line.utf8.count - 4
        let failed = "\(tally.failed) failed"
        guard line.utf8.count < columns else { return ColumnText.shortened(line, to: columns - 1) }
        let text = parts.map { $0 == failed ? colored($0, "31") : $0 }.joined(separator: "  ")
        guard !snapshot.isListing, snapshot.urlCount > 0, room >= Self.leastBar else { return text }
        return bar(Double(snapshot.done) / Double(snapshot.urlCount), min(room, Self.mostBar)) + "  " + text
    }

    private func nameWidth(_ transfers: some Collection<RunSnapshot.Transfer>) -> Int {
        let figures = transfers.map { 6 + Self.size($0).utf8.count }.max() ?? 0
        let longest = transfers.map { ColumnText.width($0.name) }.max() ?? 0
        return max(8, min(longest, Self.mostName, columns - 1 - 4 - figures))
    }

    private func line(_ transfer: RunSnapshot.Transfer, nameWidth: Int) -> String {
        let percent = Self.percent(transfer) ?? ""
        let figures =
            String(repeating: " ", count: max(0, 4 - percent.utf8.count)) + percent + "  " + Self.size(transfer)
        return ColumnText.shortened(
            "  " + ColumnText.padded(transfer.name, to: nameWidth) + "  " + figures, to: columns - 1)
    }

    private func bar(_ fraction: Double, _ width: Int) -> String {
        let inner = width - 2
        let filled = min(inner, max(0, Int(fraction * Double(inner))))
        return "[" + colored(String(repeating: "=", count: filled), "32")
            + String(repeating: " ", count: inner - filled) + "]"
    }

    private func colored(_ text: String, _ code: String) -> String {
        hasColor && !text.isEmpty ? "\u{1b}[\(code)m\(text)\u{1b}[0m" : text
    }

    // MARK: Figures

    /// Finished and known files; a plus sign marks a list that may grow.
    private static func fileCounts(_ snapshot: RunSnapshot) -> String {
        "\(snapshot.done)/\(snapshot.urlCount)\(snapshot.isListing ? "+" : "")"
    }

    private static func percent(_ transfer: RunSnapshot.Transfer) -> String? {
        guard let total = transfer.total, total > 0 else { return nil }
        return "\(min(100, Int(Double(transfer.received) * 100 / Double(total))))%"
    }

    private static func size(_ transfer: RunSnapshot.Transfer) -> String {
        let received = ByteSize.text(Double(transfer.received))
        guard let total = transfer.total else { return "\(received) of unknown size" }
        return "\(received) of \(ByteSize.text(Double(total)))"
    }

    private static func rates(_ snapshot: RunSnapshot) -> [String] {
        guard snapshot.waiting == nil else { return [] }
        var parts: [String] = []
        if let rate = snapshot.bytesPerSecond { parts.append("\(ByteSize.text(rate))/s") }
        if let left = snapshot.secondsLeft { parts.append("ETA \(TimeText.remaining(left))") }
        return parts
    }
}
