import ArgumentParser
import Testing

@testable import earshot

/// Sources of the bus that a client command uses.
@Suite struct BusOptionsTests {
    private let folder = CommandFolder()

    private func network(_ text: String) throws -> NetworkChoice {
        try #require(try ConfigurationFile.networkBuses(folder.file("config.toml", text)))
    }

    @Test func `each value comes from the first source that has it`() {
        let first = NetworkChoice(buses: nil, keyFile: "/a", serverKeys: nil)
        let second = NetworkChoice(buses: ["tcp://b:1"], keyFile: "/b", serverKeys: nil)
        let merged = first.fillingGaps(from: second)
        #expect(merged == NetworkChoice(buses: ["tcp://b:1"], keyFile: "/a", serverKeys: nil))
        #expect(!merged.isComplete)
        #expect(merged.fillingGaps(from: NetworkChoice(serverKeys: ["k"])).isComplete)
    }

    @Test func `a file names buses and keys, with paths relative to itself`() throws {
        _ = try folder.file("bus.pub", "public-key = \"k\"")
        let choice = try network(
            "slots = 3\nbus = \"tcp://a:1\"\nbus-key = \"me.key\"\nserver-key = [\"bus.pub\", \"KEY\"]\n")
        #expect(choice.buses == ["tcp://a:1"])
        #expect(choice.keyFile == folder.path + "/me.key")
        #expect(choice.serverKeys == [folder.path + "/bus.pub", "KEY"])
        #expect(try network("bus = [\"tcp://a:1\", \"tcp://b:2\"]").buses == ["tcp://a:1", "tcp://b:2"])
        #expect(try network("slots = 3") == NetworkChoice())
        #expect(try ConfigurationFile.networkBuses(folder.path + "/none.toml") == nil)
        #expect(try ConfigurationFile.read(folder.file("config.toml", "bus = \"tcp://a:1\""))?.isEmpty == true)
    }

    @Test(arguments: [
        "bus = 3", "bus = []", "bus = \"\"", "bus = [\"tcp://a:1\", 3]", "bus = \"tcp://a:1,tcp://b:2\"", "bus-key = 3",
        "bus-key = \"\"", "server-key = [[]]",
    ])
    func `a wrong value is an error that names the file and the key`(text: String) throws {
        let path = try folder.file("config.toml", text)
        for read in [{ _ = try ConfigurationFile.networkBuses(path) }, { _ = try ConfigurationFile.read(path) }] {
            let commandError = #expect(throws: CommandError.self) { try read() }
            #expect(commandError?.status == .configurationError)
            #expect(commandError?.description.hasPrefix("\(path): \(text.prefix { $0 != " " }) must be") == true)
        }
    }

    @Test func `a public key may begin with a hyphen`() throws {
        let key = "-1sz<d4XPi<48Vs(pPK7o(Dct43Ri8)Arrm*QyE6"
        let options = try BusOptions.parse(["--server-key", key, "--bus", "tcp://a:1"])
        #expect(options.serverKey == [key])
        #expect(options.bus == ["tcp://a:1"])
    }

    @Test(arguments: [
        ["--bus", "tcp://a:1,tcp://b:2"], ["--bus", "tcp://a:1, tcp://b:2"],
        ["--bus", "tcp://a:1", "--bus", "tcp://b:2"],
    ])
    func `several buses are separated by commas or repeated`(arguments: [String]) throws {
        let options = try BusOptions.parse(
            arguments + ["--bus-key", "/k", "--server-key", "x", "--server-key", "y"])
        let network = try options.networkBuses()
        #expect(network?.buses == ["tcp://a:1", "tcp://b:2"])
        #expect(network?.serverKeys == ["x", "y"])
    }

    @Test(arguments: [
        (["--bus", "tcp://a:1", "--runtime", "/run"], "exclude each other"), (["--bus", ""], "the value is empty"),
        (["--server-key", ""], "the value is empty"), (["--bus-key", ""], "the path is empty"),
    ])
    func `options that contradict each other are refused`(arguments: [String], part: String) {
        do {
            _ = try StatusCommand.parse(arguments)
            Issue.record("accepted \(arguments)")
        } catch {
            #expect(StatusCommand.message(for: error).contains(part))
        }
    }

    @Test func `commands for the machine of the bus refuse another one`() {
        for command in [StopCommand.self, DrainCommand.self, ServeCommand.self] as [any ParsableCommand.Type] {
            do {
                _ = try command.parse(["--bus", "tcp://a:1"])
                Issue.record("\(command) accepts a bus")
            } catch {
                #expect(command.message(for: error).contains("works on the machine of its bus only"))
            }
        }
    }

    @Test func `drain waits while the bus loads durable requests`() {
        func left(_ members: String) -> Int? {
            DrainCommand.unfinishedFlights(Array(#"{\#(members)"flights-now":{"queued":0,"running":0}}"#.utf8))
        }
        #expect(left("") == 0)
        #expect(left(#""durable":"loading","#) == nil)
    }
}
