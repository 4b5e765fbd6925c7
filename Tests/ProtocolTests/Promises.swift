import Foundation

/// One section of `Tests/PROMISES.md`: the tests of the items of a list or of the rows of tables in a document.
struct Promises {
    struct Row: Equatable {
        /// Beginning of the item.
        let promise: String
        let file: String
        /// Name in that file; empty for a scenario or a vector, which is one test.
        let test: String
    }

    let document: String
    let heading: String
    var rows: [Row] = []

    /// Returns the sections of the text.
    static func sections(_ text: String) -> [Promises] {
        var sections: [Promises] = []
        for line in text.split(separator: "\n") {
            if line.hasPrefix("## "), let colon = line.firstRange(of: ": ") {
                let heading = "## " + line[colon.upperBound...]
                sections.append(Promises(document: String(line[..<colon.lowerBound].dropFirst(3)), heading: heading))
            } else if line.hasPrefix("| "), !line.hasPrefix("| promise "), !line.hasPrefix("| ---"), !sections.isEmpty {
                let cells = cells(of: line)
                guard cells.count == 3 else { continue }
                let last = sections.indices.last ?? 0
                let promise = cells[0].isEmpty ? sections[last].rows.last?.promise ?? "" : cells[0]
                sections[last].rows.append(Row(promise: promise, file: cells[1], test: cells[2]))
            }
        }
        return sections
    }

    /// Returns the first cells of the tables in a section of a document; without a table, the items of its lists, of which those
    /// with numbers are the numbers.
    static func items(_ lines: [Substring]) -> [String] {
        let trimmed = lines.map { $0.drop { $0 == " " } }
        let rows = trimmed.indices.filter { index in
            let isHeader = trimmed.indices.contains(index + 1) && trimmed[index + 1].hasPrefix("| ---")
            return trimmed[index].hasPrefix("| ") && !trimmed[index].hasPrefix("| ---") && !isHeader
        }
        guard rows.isEmpty else { return rows.map { cells(of: trimmed[$0])[0] } }
        return trimmed.compactMap { line in
            if line.hasPrefix("- ") { return String(line.dropFirst(2)) }
            let number = line.prefix { $0.isWholeNumber }
            return !number.isEmpty && line.dropFirst(number.count).hasPrefix(". ") ? String(number) : nil
        }
    }

    /// Returns the promises without a row, the rows without a promise, and the rows without a test.
    ///
    /// - Parameter texts: Returns the texts of the files with a name.
    func violations(items: [String], texts: (_ file: String) throws -> [String]) rethrows -> [String] {
        let named = Set(rows.map(\.promise)).map { promise in
            (promise, items.contains(promise) ? [promise] : items.filter { $0.hasPrefix(promise) })
        }
        let tested = Set(named.flatMap { $0.1 })
        var found = items.filter { !tested.contains($0) }.map { "no test: \($0)" }
        found += named.filter { $0.1.count != 1 }.map { "not one promise: \($0.0)" }
        for row in rows {
            let hasTest = try texts(row.file).contains { text in
                let names = ["`\(row.test)`(", "func \(row.test)(", "def \(row.test)(", "\t\(row.test)\t"]
                return row.test.isEmpty || names.contains { text.range(of: $0) != nil }
            }
            if !hasTest { found.append("no such test: \(row.file) \(row.test)") }
        }
        return found.map { "\(document), \(heading): \($0)" }
    }

    private static func cells(of line: Substring) -> [String] {
        line.split(separator: "|", omittingEmptySubsequences: false).dropFirst().dropLast()
            .map { $0.trimmingCharacters(in: .whitespaces) }
    }
}
