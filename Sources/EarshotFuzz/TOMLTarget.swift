internal import TOML

/// Fuzz target: the reader of settings files. An error names a line of the text.
enum TOMLTarget {
    static func run(_ bytes: [UInt8]) {
        do throws(TOMLReader.Fault) {
            let table = try TOMLReader.table(bytes)
            for key in table.keys { precondition(table[key] != nil, "the key \(key) has no value") }
        } catch {
            let lines = bytes.count { $0 == UInt8(ascii: "\n") } + 1
            precondition((1...lines).contains(error.line), "line \(error.line) of \(lines): \(error.sentence)")
        }
    }
}
