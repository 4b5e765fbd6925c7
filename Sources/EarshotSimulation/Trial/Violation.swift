/// An invariant of ARCHITECTURE.md that did not hold.
public struct Violation: Error, Equatable, Sendable, CustomStringConvertible {
    /// Its number there.
    public var invariant: Int
    public var detail: String
    /// What makes this disagreement the same as one of another run, be it with other names and numbers.
    public var kind: String

    /// - Parameter kind: nil for the words of the detail without those that hold a digit: so do all names of a
    ///   simulated world, but not the codes of failures.
    public init(_ invariant: Int, _ detail: String, kind: String? = nil) {
        self.invariant = invariant
        self.detail = detail
        self.kind = kind ?? Self.kind(of: detail)
    }

    /// From a line of `BrokerCore.audit`, which begins with the number.
    init(audit line: String) {
        let number = line.prefix { $0 != ":" }
        self.init(Int(number) ?? 0, "audit \(line)")
    }

    public var description: String { "invariant \(invariant): \(detail)" }

    /// Whether it is one disagreement seen twice.
    public func isSame(as other: Violation) -> Bool { invariant == other.invariant && kind == other.kind }

    /// How many names or numbers follow each other does not count: a list is as long as it is.
    private static func kind(of detail: String) -> String {
        var words: [Substring] = []
        for word in detail.split(separator: " ") {
            let isVariable = word.utf8.contains { (0x30...0x39).contains($0) }
            if !isVariable || words.last != "#" { words.append(isVariable ? "#" : word) }
        }
        return words.joined(separator: " ")
    }
}
