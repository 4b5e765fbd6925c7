import ArgumentParser
import EarshotClient
import Testing

@testable import earshot

/// Words of the command line that the argument parser would misread: empty values, and keys that begin with a dash.
@Suite struct CommandLineTests {
    @Test func `an empty value is an argument of its own`() {
        #expect(
            CommandLine.separatingEmptyValues(["get", "--user-agent=", "-d=", "--a=b=", "U?a=", "--", "--b="])
                == ["get", "--user-agent", "", "-d=", "--a=b=", "U?a=", "--", "--b="])
        #expect(CommandLine.separatingEmptyValues([]) == [])
    }

    @Test func `an empty value does not take the next URL`() throws {
        let words = CommandLine.separatingEmptyValues(["--user-agent=", "-d", "o", "http://h/1", "http://h/2"])
        let command = try GetCommand.parse(words)
        #expect(command.urls == ["http://h/1", "http://h/2"] && command.request.exchange.userAgent == "")
    }

    @Test(arguments: [
        ["key", "add", "laptop", "KEY"], ["key", "add", "laptop", "KEY", "--connections", "4"],
        ["key", "add", "--connections=4", "KEY", "laptop"], ["key", "add", "laptop", "--", "KEY"],
    ])
    func `a public key may begin with a dash`(words: [String]) throws {
        let key = "-\(String(repeating: "a", count: 39))"
        let words = CommandLine.separatingPublicKey(words.map { $0 == "KEY" ? key : $0 })
        #expect(try KeyCommand.Add.parse(Array(words.dropFirst(2))).publicKey == key)
    }

    @Test func `only a key moves behind two dashes`() {
        let words = ["key", "add", "laptop", "-short", "--keys=/etc/earshot/keys.toml"]
        #expect(CommandLine.separatingPublicKey(words) == words)
        let others = ["get", "-\(String(repeating: "a", count: 39))"]
        #expect(CommandLine.separatingPublicKey(others) == others)
    }

    @Test(arguments: [
        "--directory=", "--failed=", "--output=", "--input=", "--dump-header=", "--netrc-file=", "--runtime=",
    ])
    func `an empty path is refused`(option: String) {
        #expect(
            performing: { try GetCommand.parse(CommandLine.separatingEmptyValues([option, "http://h/1"])) },
            throws: { GetCommand.message(for: $0).hasPrefix("\(option.dropLast()): the path is empty; ") })
    }

    @Test func `the runtime folder needs a path`() {
        #expect(throws: ClientError.self) { try RuntimeFolder(named: "") }
    }
}
