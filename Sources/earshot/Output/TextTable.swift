/// Lines of cells: padded columns on a terminal, otherwise separated by tabs.
struct TextTable {
    private let isPadded: Bool

    init(isPadded: Bool) {
        self.isPadded = isPadded
    }

    /// Renders rows, one line each. A row may lack the last columns of the first one. Its last cell is not padded.
    func text(_ rows: [[String]]) -> String {
        guard isPadded, let columns = rows.first?.count else {
            return rows.map { $0.joined(separator: "\t") + "\n" }.joined()
        }
        let widths = (0..<columns).map { column in rows.map { $0.dropFirst(column).first?.count ?? 0 }.max() ?? 0 }
        return rows.map { row in
            let padded = zip(row, widths).dropLast().map { $0 + String(repeating: " ", count: $1 - $0.count) + "  " }
            return padded.joined() + (row.last ?? "") + "\n"
        }.joined()
    }
}
