import EarshotGateway
import EarshotLoop
import Glibc
import Testing
import ZeroMQ

@testable import earshot

/// File of the keys of a bus and its clients.
@Suite struct KeyFileTests {
    private let folder = CommandFolder()
    private let publicKey = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    private let serverKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    private let serverSecret = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"

    private func file(_ text: String, mode: UInt32 = 0o600) throws -> String {
        let path = try folder.file("keys.toml", text)
        #expect(unsafe chmod(path, mode) == 0)
        return path
    }

    private func fault(_ text: String, mode: UInt32 = 0o600) throws -> Complaint? {
        let path = try file(text, mode: mode)
        return #expect(throws: Complaint.self) { try KeyFile(path) }
    }

    @Test func `a file is read as it was written`() throws {
        let path = folder.path + "/new/keys.toml"
        let name = try #require(KeyName("lap:top@x"))
        let client = ClientKey(
            name: name, publicKey: publicKey, expiry: KeyExpiry("2027-01-31T00:00:01Z"), connections: 3)
        var server = ""
        try KeyFile.change(path) { file in
            server = try file.makeServer()
            try file.add(client)
        }
        #expect(throws: Complaint.self) { try KeyFile.change(path) { file in try file.add(client) } }
        #expect(server.utf8.count == 40)
        let read = try KeyFile(path)
        #expect(read.server?.publicKey == server)
        #expect(read.clients == [client])
        #expect(try read.keys().count == 1)
        var status = stat()
        #expect(unsafe stat(path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
        try KeyFile.change(path) { file in
            let again = try file.makeServer()
            #expect(again == server)
            try file.revoke(name)
        }
        #expect(throws: Complaint.self) { try KeyFile.change(path) { file in try file.revoke(name) } }
        #expect(try KeyFile(path).clients.isEmpty)
    }

    @Test func `a missing file has no keys`() throws {
        let file = try KeyFile(folder.path + "/none.toml")
        #expect(file.clients.isEmpty && file.server == nil)
        let fault = #expect(throws: Complaint.self) { try file.keys() }
        #expect(fault?.status == .configuration)
    }

    @Test func `the public key of the bus is derived from the secret one`() throws {
        let path = try file("[server]\nsecret-key = \"\(serverSecret)\"\n")
        #expect(try KeyFile(path).server?.publicKey == serverKey)
    }

    @Test(arguments: [0o640, 0o604, 0o660, 0o777] as [UInt32])
    func `a file that others can read is refused`(_ mode: UInt32) throws {
        let complaint = try fault("", mode: mode)
        #expect(complaint?.status == .configuration)
        #expect(complaint?.description.contains("chmod 600") == true)
    }

    @Test func `a fault names its place`() throws {
        let key = "public-key = \"\(publicKey)\""
        let cases: [(text: String, part: String)] = [
            ("x = 1", "x: unknown key"), ("[server]\n", "[server] needs secret-key"),
            ("[server]\nsecret-key = \"short\"\n", "[server] needs secret-key"),
            ("[server]\nsecret-key = \"\(serverSecret)\"\npublic-key = \"\(publicKey)\"\n", "does not belong"),
            ("[client.\"a b\"]\n\(key)\n", "a name must be"), ("[client.a]\n", "client.\"a\" needs public-key"),
            ("[client.a]\npublic-key = \"\(String(repeating: "#", count: 40))\"\n", "needs public-key"),
            ("[client.a]\n\(key)\nrole = \"other\"\n", "role must be client, worker"),
            ("[client.a]\n\(key)\nrole = \"worker\"\n", "need each other"),
            ("[client.a]\n\(key)\nserves = \"b\"\n", "need each other"),
            ("[client.a]\n\(key)\nrole = \"worker\"\nserves = \"b c\"\n", "serves must be"),
            ("[client.a]\n\(key)\nexpires = \"tomorrow\"\n", "expires must be"),
            ("[client.a]\n\(key)\nexpires = 2027-01-31\n", "expires must be"),
            ("[client.a]\n\(key)\nconnections = 0\n", "connections must be"),
            ("[client.a]\n\(key)\nx = 1\n", "x: unknown key"),
            ("[client.a]\n\(key)\n[client.b]\n\(key)\n", "a and b have the same public-key"),
            ("client = 1\n", "a table"),
            ("[client.a]\n\(key)\n[client.a]\n\(key)\n", "line "),
        ]
        for (text, part) in cases {
            #expect(try fault(text)?.description.contains(part) == true, "\(text)")
        }
    }
}
