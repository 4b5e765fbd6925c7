internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot http-env`: the environment of programs that use the HTTP door as their proxy.
struct HTTPEnvCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "http-env", abstract: "Print shell commands that make the HTTP door the proxy of programs.",
        discussion: """
            The bus has a door with the setting `http`, as by `earshot serve --http 5768`.

              eval "$(earshot http-env)"
            """)

    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try conclude {
            let answers = try BusQuery.answers(.status, in: place)
            let addresses = answers.first.flatMap { JSONValue($0) }?.member("http")?.items("addresses").compactMap(
                \.text)
            guard let url = addresses?.first(where: { $0.hasPrefix("http://") && !$0.hasSuffix("/v1/") }) else {
                throw CommandError(
                    .noBroker, "this bus has no HTTP door at a port; start it with `earshot serve --http 5768`")
            }
            // Programs differ in the case that they read.
            try StandardOutput().write(Array("export http_proxy=\(url) HTTP_PROXY=\(url)\n".utf8))
            return .done
        }
    }
}
