/// An invariant of ARCHITECTURE.md that did not hold.
public struct Violation: Error, Equatable, Sendable, CustomStringConvertible {
    /// Its number there.
    public var invariant: Int
    public var detail: String

    public init(_ invariant: Int, _ detail: String) {
        self.invariant = invariant
        self.detail = detail
    }

    /// From a line of `BrokerCore.audit`, which begins with the number.
    init(audit line: String) {
        let number = line.prefix { $0 != ":" }
        self.init(Int(number) ?? 0, "audit \(line)")
    }

    public var description: String { "invariant \(invariant): \(detail)" }
}
