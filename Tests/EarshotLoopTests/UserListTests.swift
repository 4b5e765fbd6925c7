import EarshotLoop
import Foundation
import Testing

/// Users and groups by name and number.
@Suite struct UserListTests {
    private func contains(_ names: [String], _ user: UInt32, _ groups: Set<UInt32> = []) throws -> Bool {
        try UserList(names).contains(user) { groups }
    }

    @Test func `names of users and groups, and numbers, name their IDs`() throws {
        #expect(try contains(["root"], 0) && !contains(["root"], 1))
        #expect(try contains(["4000000000"], 4_000_000_000))
        #expect(try contains(["@root"], 7, [3, 0]) && !contains(["@root"], 7, [3]))
        #expect(try contains(["@12345"], 7, [12_345]))
        #expect(try !contains(["0"], 7, [0]), "a user is no group")
        #expect(try UserList([]).isEmpty && !UserList(["0"]).isEmpty)
    }

    @Test func `groups are looked up only if the result depends on them`() throws {
        var count = 0
        let list = try UserList(["1", "@root"])
        for user: UInt32 in [1, 2] {
            _ = list.contains(user) {
                count += 1
                return []
            }
        }
        _ = try UserList(["1"]).contains(3) {
            count += 1
            return []
        }
        #expect(count == 1)
    }

    @Test(arguments: ["no-such-user", "@no-such-group", "", "@", "4294967295", "-1", "99999999999"])
    func `an unknown name is an error that names it`(name: String) {
        let error = #expect(throws: UserList.UnknownName.self) { try UserList(["root", name]) }
        #expect(
            error?.description.contains(name.hasPrefix("@") ? "no group \(name.dropFirst())" : "no user \(name)")
                == true)
    }

    @Test func `a user's groups include the primary one, and an unknown user has none`() {
        #expect(Accounts.groups(of: 0).contains(0))
        #expect(Accounts.groups(of: 4_123_456_789).isEmpty)
    }
}
