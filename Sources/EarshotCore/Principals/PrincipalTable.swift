internal import EarshotWire

/// Principals by number and by name.
///
/// A number is valid while a session or a handler has it. Unused entries are not removed at once: the table sweeps them
/// when it has doubled, so that no path of a request counts references.
struct PrincipalTable {
    /// Number of the administrator: the user that runs the broker, and root. It has no name.
    static let administrator: Int32 = 0
    /// Number of entries before the first sweep: more than most machines have users.
    private static let firstSweep = 64

    /// Names by number; nil for the administrator.
    private var names = Slab<PrincipalName?>()
    private var numbers: [PrincipalName: Int32] = [:]
    /// Number of entries at which the next insertion sweeps.
    private var sweepCount = firstSweep

    init() {
        let first = names.insert(nil)
        precondition(first == Self.administrator, "the administrator has number \(first)")
    }

    /// Number of principals, with the administrator.
    var count: Int { names.count }

    /// Numbers of all principals. O(principals).
    var indices: [Int32] { names.indices }

    func contains(_ principal: Int32) -> Bool { names.contains(principal) }

    /// Name of a principal; nil for the administrator.
    func name(of principal: Int32) -> PrincipalName? { names[principal] }

    /// Number of a known principal.
    func number(of name: PrincipalName) -> Int32? { numbers[name] }

    /// Number of a principal, which is added if needed. The caller refers to it next.
    ///
    /// - Parameters:
    ///   - name: nil for the administrator.
    ///   - used: numbers that a session or a handler has. Called only for a sweep.
    mutating func add(_ name: PrincipalName?, used: () -> Set<Int32>) -> Int32 {
        guard let name else { return Self.administrator }
        if let number = numbers[name] { return number }
        if count >= sweepCount { sweep(except: used()) }
        let number = names.insert(name)
        numbers[name] = number
        return number
    }

    private mutating func sweep(except used: Set<Int32>) {
        for number in indices where number != Self.administrator && !used.contains(number) {
            if let name = names[number] { numbers[name] = nil }
            names.remove(number)
        }
        sweepCount = max(Self.firstSweep, count * 2)
    }

    /// Returns a sentence for each violated invariant. O(principals).
    ///
    /// - Parameter used: numbers that a session or a handler has.
    func checkInvariants(used: Set<Int32>) -> [String] {
        var faults: [String] = []
        if !used.allSatisfy({ names.contains($0) }) { faults.append("12: a session or a handler has no principal") }
        let isIndexed = indices.allSatisfy { number in
            names[number].map { numbers[$0] == number } ?? (number == Self.administrator)
        }
        if !isIndexed || numbers.count != count - 1 { faults.append("12: \(count) principals, \(numbers.count) names") }
        return faults
    }
}
