/// Violation of an invariant of ARCHITECTURE.md, as models and checks report it.
public struct Violation: Error, Equatable, Sendable, CustomStringConvertible {
    /// Number of the invariant.
    public var invariant: Int
    public var detail: String
    /// Kind of disagreement, equal for the same one in another run with other names and numbers.
    public var kind: String

    /// - Parameter kind: Nil to use the detail without words that contain digits. All names of a simulated world
    ///   contain digits; failure codes do not.
    public init(_ invariant: Int, _ detail: String, kind: String? = nil) {
        self.invariant = invariant
        self.detail = detail
        self.kind = kind ?? Self.kind(of: detail)
    }

    /// Creates a violation from a line of `BrokerCore.audit`, which begins with the number.
    init(audit line: String) {
        let number = line.prefix { $0 != ":" }
        self.init(Int(number) ?? 0, "audit \(line)")
    }

    public var description: String { "invariant \(invariant): \(detail)" }

    /// Returns whether both are the same disagreement.
    public func isSame(as other: Violation) -> Bool { invariant == other.invariant && kind == other.kind }

    /// Returns the detail with each run of names and numbers replaced by one placeholder.
    private static func kind(of detail: String) -> String {
        var words: [Substring] = []
        for word in detail.split(separator: " ") {
            let isVariable = word.utf8.contains { (0x30...0x39).contains($0) }
            if !isVariable || words.last != "#" { words.append(isVariable ? "#" : word) }
        }
        return words.joined(separator: " ")
    }
}
