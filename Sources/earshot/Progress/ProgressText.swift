/// Progress of a run of `earshot get` as lines of text, which `ProgressView` shows.
struct ProgressText {
    /// Size of the terminal in characters.
    var columns: Int
    var rows: Int
    var hasColor: Bool

    /// Minimum width of a bar.
    private static let minimumBarWidth = 10
    /// Maximum width of a bar.
    private static let maximumBarWidth = 40
    /// Maximum width of a name in the list of transfers.
    private static let maximumNameWidth = 60

    /// Lines for a terminal, each narrower than it. At most `rows - 1`.
    func lines(_ snapshot: RunSnapshot) -> [String] {
        var lines: [String] = []
        if snapshot.urlCount == 1, !snapshot.isReadingURLs {
            if let transfer = snapshot.transfers.first { lines.append(transferLine(transfer, snapshot)) }
        } else {
            lines.append(header(snapshot))
        }
        if let waiting = snapshot.waitReason {
            lines.append(colored(ColumnText.shortened(waiting, to: columns - 1), "33"))
        }
        guard snapshot.urlCount > 1 || snapshot.isReadingURLs else { return lines }
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
    static func logLine(_ snapshot: RunSnapshot) -> String {
        var parts: [String]
        if snapshot.urlCount == 1, !snapshot.isReadingURLs {
            guard let transfer = snapshot.transfers.first else { return snapshot.waitReason ?? "nothing received yet" }
            let words = [transfer.name, percent(transfer), sizeText(transfer)].compactMap(\.self)
            parts = [words.joined(separator: " ")]
        } else {
            parts = [fileCounts(snapshot) + " files"]
            if snapshot.tally.failedCount > 0 { parts.append("\(snapshot.tally.failedCount) failed") }
            parts.append(ByteSize.text(snapshot.transferredBytes))
        }
        parts += rates(snapshot)
        if let waiting = snapshot.waitReason { parts.append(waiting) }
        return parts.joined(separator: ", ")
    }

    // MARK: Lines

    private func transferLine(_ transfer: RunSnapshot.Transfer, _ snapshot: RunSnapshot) -> String {
        let parts = [Self.percent(transfer), Self.sizeText(transfer)].compactMap(\.self) + Self.rates(snapshot)
        let figures = parts.joined(separator: "  ")
        let nameRoom = columns - 1 - figures.utf8.count - 2
        let name = ColumnText.shortened(transfer.name, to: max(0, min(nameRoom, ColumnText.width(transfer.name))))
        let barRoom = nameRoom - ColumnText.width(name) - 4
        let line = name.isEmpty ? figures : "\(name)  \(figures)"
        guard let total = transfer.totalBytes, total > 0, barRoom >= Self.minimumBarWidth else {
            return ColumnText.shortened(line, to: columns - 1)
        }
        let fraction = Double(transfer.receivedBytes) / Double(total)
        return "\(name)  \(bar(fraction, min(barRoom, Self.maximumBarWidth)))  \(figures)"
    }

    private func header(_ snapshot: RunSnapshot) -> String {
        let tally = snapshot.tally
        var parts = [Self.fileCounts(snapshot) + " files"]
        if tally.failedCount > 0 { parts.append("\(tally.failedCount) failed") }
        parts.append(ByteSize.text(snapshot.transferredBytes))
        parts += Self.rates(snapshot)
        if tally.cachedCount > 0 { parts.append("\(tally.cachedCount) cached") }
        let line = parts.joined(separator: "  ")
        let room = columns - 1 - line.utf8.count - 4
        let failed = "\(tally.failedCount) failed"
        guard line.utf8.count < columns else { return ColumnText.shortened(line, to: columns - 1) }
        let text = parts.map { $0 == failed ? colored($0, "31") : $0 }.joined(separator: "  ")
        guard !snapshot.isReadingURLs, snapshot.urlCount > 0, room >= Self.minimumBarWidth else { return text }
        return bar(Double(snapshot.finishedCount) / Double(snapshot.urlCount), min(room, Self.maximumBarWidth)) + "  "
            + text
    }

    private func nameWidth(_ transfers: some Collection<RunSnapshot.Transfer>) -> Int {
        let figures = transfers.map { 6 + Self.sizeText($0).utf8.count }.max() ?? 0
        let longest = transfers.map { ColumnText.width($0.name) }.max() ?? 0
        return max(8, min(longest, Self.maximumNameWidth, columns - 1 - 4 - figures))
    }

    private func line(_ transfer: RunSnapshot.Transfer, nameWidth: Int) -> String {
        let percent = Self.percent(transfer) ?? ""
        let figures =
            String(repeating: " ", count: max(0, 4 - percent.utf8.count)) + percent + "  " + Self.sizeText(transfer)
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
        "\(snapshot.finishedCount)/\(snapshot.urlCount)\(snapshot.isReadingURLs ? "+" : "")"
    }

    private static func percent(_ transfer: RunSnapshot.Transfer) -> String? {
        guard let total = transfer.totalBytes, total > 0 else { return nil }
        return "\(min(100, Int(Double(transfer.receivedBytes) * 100 / Double(total))))%"
    }

    private static func sizeText(_ transfer: RunSnapshot.Transfer) -> String {
        let received = ByteSize.text(Double(transfer.receivedBytes))
        guard let total = transfer.totalBytes else { return "\(received) of unknown size" }
        return "\(received) of \(ByteSize.text(Double(total)))"
    }

    private static func rates(_ snapshot: RunSnapshot) -> [String] {
        guard snapshot.waitReason == nil else { return [] }
        var parts: [String] = []
        if let rate = snapshot.bytesPerSecond { parts.append("\(ByteSize.text(rate))/s") }
        if let left = snapshot.secondsLeft { parts.append("ETA \(TimeText.remaining(left))") }
        return parts
    }
}

/// Time spans as people read them, for progress, lists of requests and `earshot top`.
enum TimeText {
    /// Remaining time: `0:42`, `1:02:03` or `2d 3h`.
    static func remaining(_ seconds: Double) -> String {
        let whole = Int(min(max(seconds, 0), 1e9).rounded(.up))
        let (minutes, hours) = (whole / 60 % 60, whole / 3600)
        if hours >= 48 { return "\(hours / 24)d \(hours % 24)h" }
        return hours > 0
            ? "\(hours):\(twoDigits(minutes)):\(twoDigits(whole % 60))" : "\(minutes):\(twoDigits(whole % 60))"
    }

    /// Elapsed time: `1.2 s`, or as ``remaining(_:)`` from one minute.
    static func elapsed(_ seconds: Double) -> String {
        guard seconds < 60 else { return remaining(seconds.rounded(.down)) }
        let tenths = Int(max(seconds, 0) * 10)
        return "\(tenths / 10).\(tenths % 10) s"
    }

    /// Age in its largest whole unit: `250ms`, `12s`, `3m`, `5h`, `2d`.
    static func age(milliseconds: Int) -> String {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        for (size, unit) in units where milliseconds >= size { return "\(milliseconds / size)\(unit)" }
        return "\(max(0, milliseconds))ms"
    }

    private static func twoDigits(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
}

/// Width of text on a terminal, in columns, for the lines of `ProgressText`.
enum ColumnText {
    /// Scalars that take two columns: East Asian wide characters and emoji.
    private static let wideRanges: [ClosedRange<UInt32>] = [
        0x1100...0x115f, 0x2e80...0xa4cf, 0xac00...0xd7a3, 0xf900...0xfaff, 0xfe30...0xfe6f, 0xff00...0xff60,
        0xffe0...0xffe6, 0x1f300...0x1f64f, 0x1f900...0x1faff, 0x20000...0x3fffd,
    ]

    static func width(_ text: String) -> Int {
        text.unicodeScalars.reduce(0) { $0 + width($1) }
    }

    /// Returns text of at most `columns`. `...` replaces the middle of longer text.
    static func shortened(_ text: String, to columns: Int) -> String {
        guard width(text) > columns else { return text }
        guard columns > 8 else { return prefix(text.unicodeScalars, columns) }
        let head = (columns - 3) * 2 / 3
        let tail = prefix(text.unicodeScalars.reversed(), columns - 3 - head)
        let end = tail.unicodeScalars.reversed().map { String($0) }.joined()
        return prefix(text.unicodeScalars, head) + "..." + end
    }

    /// Returns text of exactly `columns`, with spaces at the end of shorter text.
    static func padded(_ text: String, to columns: Int) -> String {
        let text = shortened(text, to: columns)
        return text + String(repeating: " ", count: max(0, columns - width(text)))
    }

    private static func prefix(_ scalars: some Sequence<Unicode.Scalar>, _ columns: Int) -> String {
        var result = ""
        var used = 0
        for scalar in scalars {
            used += width(scalar)
            guard used <= columns else { break }
            result.unicodeScalars.append(scalar)
        }
        return result
    }

    private static func width(_ scalar: Unicode.Scalar) -> Int {
        if scalar.value < 0x300 { return 1 }
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format: return 0
        default: return wideRanges.contains { $0.contains(scalar.value) } ? 2 : 1
        }
    }
}
