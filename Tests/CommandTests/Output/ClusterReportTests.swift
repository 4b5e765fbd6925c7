import EarshotClient
import Testing

@testable import earshot

/// The answer to `QUERY cluster` as text.
@Suite struct ClusterReportTests {
    @Test func `a member has a machine and an address, each in a column`() throws {
        let json = """
            {"cluster":{"mode":"member","node":"a1","address":"10.0.0.1:5767","members":[
            {"node":"a1","self":true,"machine":"alpha","address":"10.0.0.1:5767","lease-ms":4000,"flights":2},
            {"node":"b2","self":false,"address":"10.0.0.2:5767","lease-ms":0,"flights":0},
            {"node":"c3","self":false,"readable":false,"address":"10.0.0.3:5767","lease-ms":1,"flights":0}]}}
            """
        let lines = ClusterStatusText(try #require(JSONValue(Array(json.utf8)))).text.split(separator: "\n").suffix(4)
        let words = lines.map { $0.split(separator: " ").joined(separator: " ") }
        #expect(
            words == [
                "NODE MACHINE ADDRESS LEASE FLIGHTS", "a1 alpha 10.0.0.1:5767 4000 ms 2 this node",
                "b2 - 10.0.0.2:5767 expired 0", "c3 - 10.0.0.3:5767 1 ms 0 bodies cannot be read",
            ])
    }

    @Test(arguments: [(true, "of all users and remote clients"), (false, "share-between-users = on")])
    func `a node tells whether remote clients share`(isOn: Bool, part: String) throws {
        let json = #"{"cluster":{"mode":"member","share-between-users":\#(isOn)}}"#
        let lines = ClusterStatusText(try #require(JSONValue(Array(json.utf8)))).text.split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("sharing") })
        #expect(line.contains(part))
    }
}
