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

    private func fault(_ text: String, mode: UInt32 = 0o600) throws -> CommandError? {
        let path = try file(text, mode: mode)
        return #expect(throws: CommandError.self) { try KeyFile(path) }
    }

    @Test func `a file is read as it was written`() throws {
        let path = folder.path + "/new/keys.toml"
        let name = try #require(KeyName("lap:top@x"))
        let client = ClientKey(
            name: name, publicKey: publicKey, expiry: KeyExpiry("2027-01-31T00:00:01Z"), connections: 3)
        var server = ""
        try KeyFile.update(path) { file in
            server = try file.makeServer()
            try file.add(client)
        }
        #expect(throws: CommandError.self) { try KeyFile.update(path) { file in try file.add(client) } }
        #expect(server.utf8.count == 40)
        let read = try KeyFile(path)
        #expect(read.server?.publicKey == server)
        #expect(read.clients == [client])
        #expect(try read.gatewayKeys().count == 1)
        var status = stat()
        #expect(unsafe stat(path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
        try KeyFile.update(path) { file in
            let again = try file.makeServer()
            #expect(again == server)
            try file.revoke(name)
        }
        #expect(throws: CommandError.self) { try KeyFile.update(path) { file in try file.revoke(name) } }
        #expect(try KeyFile(path).clients.isEmpty)
    }

    @Test func `a missing file has no keys`() throws {
        let file = try KeyFile(folder.path + "/none.toml")
        #expect(file.clients.isEmpty && file.server == nil)
        let fault = #expect(throws: CommandError.self) { try file.gatewayKeys() }
        #expect(fault?.status == .configurationError)
    }

    @Test func `the public key of the bus is derived from the secret one`() throws {
        let path = try file("[server]\nsecret-key = \"\(serverSecret)\"\n")
        #expect(try KeyFile(path).server?.publicKey == serverKey)
    }

    @Test func `a changed file is refused, or means what it says when it is written again`() throws {
        let text = """
            [server]
            secret-key = "\(serverSecret)"
            public-key = "\(serverKey)"
            [client."lap:top@x"]
            public-key = "\(publicKey)"
            expires = "2027-01-31T18:00:00Z"
            connections = 3
            [client.worker]
            public-key = '\(serverKey)'
            role = "worker"
            serves = "lap:top@x" # a comment

            """
        #expect(try KeyFile(file(text)).clients.count == 2)
        var generator = SystemRandomNumberGenerator()
        var accepted = 0
        for _ in 0..<500 {
            var bytes = Array(text.utf8)
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let place = Int.random(in: 0..<bytes.count, using: &generator)
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: bytes[place] = UInt8.random(in: 0...255, using: &generator)
                case 1: bytes.remove(at: place)
                case 2: bytes.insert(bytes[Int.random(in: 0..<bytes.count, using: &generator)], at: place)
                default: bytes.removeLast(min(bytes.count - 1, Int.random(in: 0..<60, using: &generator)))
                }
            }
            let changed = String(decoding: bytes, as: UTF8.self)
            guard let read = try? KeyFile(file(changed)) else { continue }
            accepted += 1
            let again = try KeyFile(file(read.text))
            #expect(again.clients == read.clients && again.server == read.server, "\(changed)")
            #expect(read.clients.allSatisfy { ($0.role == .worker) == ($0.servedClient != nil) }, "\(changed)")
        }
        #expect(accepted > 0)
    }

    @Test(arguments: [0o640, 0o604, 0o660, 0o777] as [UInt32])
    func `a file that others can read is refused`(_ mode: UInt32) throws {
        let commandError = try fault("", mode: mode)
        #expect(commandError?.status == .configurationError)
        #expect(commandError?.description.contains("chmod 600") == true)
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
            ("[client.a]\n\(key)\nrole = \"node\"\n", "role must be client, worker"),
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
