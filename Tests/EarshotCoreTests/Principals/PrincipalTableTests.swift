import EarshotWire
import Testing

@testable import EarshotCore

/// The table of principals in isolation: numbers, names and sweeps.
struct PrincipalTableTests {
    private static func name(_ number: Int) -> PrincipalName { PrincipalName("uid:\(number)")! }

    @Test func `the administrator has number 0 and no name`() {
        var table = PrincipalTable()
        #expect(table.addPrincipal(nil) { [] } == PrincipalTable.administrator)
        #expect(table.name(of: PrincipalTable.administrator) == nil)
        #expect(table.count == 1)
    }

    @Test func `a name keeps its number`() {
        var table = PrincipalTable()
        let number = table.addPrincipal(Self.name(1)) { [] }
        #expect(number != PrincipalTable.administrator)
        #expect(table.addPrincipal(Self.name(1)) { [] } == number)
        #expect(table.addPrincipal(Self.name(2)) { [] } != number)
        #expect(table.handle(of: Self.name(1)) == number && table.name(of: number) == Self.name(1))
        #expect(table.handle(of: Self.name(3)) == nil)
    }

    @Test func `a million names one after the other leave a small table, and those in use stay`() {
        var table = PrincipalTable()
        let kept = table.addPrincipal(Self.name(0)) { [] }
        for number in 1...1_000_000 {
            let principal = table.addPrincipal(Self.name(number)) { [kept] }
            #expect(principal != kept && principal != PrincipalTable.administrator)
        }
        #expect(table.count <= 64)
        #expect(table.handle(of: Self.name(0)) == kept)
        #expect(table.checkInvariants(used: [kept]) == [])
    }

    @Test func `a table whose names are all in use doubles before it sweeps again`() {
        var table = PrincipalTable()
        var sweeps = 0
        var used: Set<Handle<Principal>> = []
        for number in 1...1_000 {
            let principal = table.addPrincipal(Self.name(number)) {
                sweeps += 1
                return used
            }
            used.insert(principal)
        }
        #expect(table.count == 1_001)
        #expect(sweeps <= 5)
        #expect(table.checkInvariants(used: used) == [])
        #expect(table.checkInvariants(used: [5_000]) == ["12: a session or a handler has no principal"])
    }
}
