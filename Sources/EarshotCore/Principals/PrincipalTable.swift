package import EarshotWire

/// Principals by handle and by name.
///
/// An entry is valid while a session or a handler has it. Unused entries are not removed at once: the table sweeps them
/// when it has doubled, so that no path of a request counts references.
package struct PrincipalTable {
    /// The administrator: the user that runs the broker, and root. It has no name.
    package static let administrator = Slab<Principal>.firstHandle
    /// Number of entries before the first sweep: more than most machines have users.
    private static let firstSweepThreshold = 64

    private var principals = Slab<Principal>()
    private var handlesByName: [PrincipalName: Handle<Principal>] = [:]
    /// Number of entries at which the next insertion sweeps.
    private var nextSweepThreshold = firstSweepThreshold

    init() {
        let first = principals.insert(Principal(name: nil))
        precondition(first == Self.administrator, "the administrator has number \(first)")
    }

    /// Number of principals, with the administrator.
    var count: Int { principals.count }

    /// Handles of all principals. O(principals).
    var indices: [Handle<Principal>] { principals.indices }

    func contains(_ principal: Handle<Principal>) -> Bool { principals.contains(principal) }

    /// Name of a principal; nil for the administrator.
    package func name(of principal: Handle<Principal>) -> PrincipalName? { principals[principal].name }

    /// The principal of this name, if it is known.
    func handle(of name: PrincipalName) -> Handle<Principal>? { handlesByName[name] }

    /// A principal, which is added if needed. The caller refers to it next.
    ///
    /// - Parameters:
    ///   - name: nil for the administrator.
    ///   - used: returns the principals that a session or a handler has. Called only for a sweep.
    mutating func addPrincipal(_ name: PrincipalName?, used: () -> Set<Handle<Principal>>) -> Handle<Principal> {
        guard let name else { return Self.administrator }
        if let number = handlesByName[name] { return number }
        if count >= nextSweepThreshold { removeUnused(except: used()) }
        let number = principals.insert(Principal(name: name))
        handlesByName[name] = number
        return number
    }

    private mutating func removeUnused(except used: Set<Handle<Principal>>) {
        for number in indices where number != Self.administrator && !used.contains(number) {
            if let name = principals[number].name { handlesByName[name] = nil }
            principals.destroy(number)
        }
        nextSweepThreshold = max(Self.firstSweepThreshold, count * 2)
    }

    /// Returns a sentence for each violated invariant. O(principals).
    ///
    /// - Parameter used: principals that a session or a handler has.
    func checkInvariants(used: Set<Handle<Principal>>) -> [String] {
        var faults: [String] = []
        if !used.allSatisfy({ principals.contains($0) }) {
            faults.append("12: a session or a handler has no principal")
        }
        let isIndexed = indices.allSatisfy { number in
            principals[number].name.map { handlesByName[$0] == number } ?? (number == Self.administrator)
        }
        if !isIndexed || handlesByName.count != count - 1 {
            faults.append("12: \(count) principals, \(handlesByName.count) names")
        }
        return faults
    }
}

/// Authenticated user of sessions.
package struct Principal {
    /// Nil for the administrator.
    let name: PrincipalName?
}
