import ArgumentParser
import EarshotClient
import Testing

@testable import earshot

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
