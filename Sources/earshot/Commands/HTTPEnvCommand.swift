internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotWire

/// `earshot http-env`: the environment of programs that use the HTTP door as their proxy.
struct HTTPEnvCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "http-env", abstract: "Print shell commands that make the HTTP door the proxy of programs.",
        discussion: """
            The bus has a door with the setting `http`, as by `earshot serve --http 5768`. In a bus with `users` or \
            `listen`, and beyond loopback, the output contains the first token of `http-tokens`.

              eval "$(earshot http-env)"
            """)

    /// Maximum size of a token file that the door accepts: 256 characters, and the end of the line.
    private static let maximumTokenFileBytes = 258

    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            let status = try BusQuery.answers(.status, in: place).first.flatMap { JSONValue($0) }
            let addresses = (status?.member("http")?.items(ofMember: "addresses") ?? []).compactMap(\.scalarText)
            let ports = addresses.filter { $0.hasPrefix("http://") && !$0.hasSuffix("/v1/") }
                .map { String($0.dropFirst(7).dropLast()) }
            guard let port = ports.first(where: { !DoorAddress.isRemote($0) }) ?? ports.first else {
                throw CommandError(
                    .noBroker,
                    "this bus shows you no HTTP door at a port; start it with `earshot serve --http 5768`")
            }
            let proxy = "http://\(try credentials(at: port))\(port)/"
            // Programs differ in the case that they read.
            try StandardOutput().write(Array("export http_proxy=\(proxy) HTTP_PROXY=\(proxy)\n".utf8))
            return .success
        }
    }

    /// Returns the token as user and password of a URL if the user of the bus needs one, and an empty text otherwise.
    private func credentials(at port: String) throws -> String {
        let answers = try BusQuery.answers(.settings, in: place)
        let rows = answers.compactMap { JSONValue($0) }.flatMap { $0.items(ofMember: "settings") }
        let lists = [ListSettingName.allowedUsers, .clientListenAddresses, .httpTokenFiles].map { name in
            let value = rows.first { $0.member("name")?.scalarText == name.rawValue }?.member("value")?.scalarText
            return value.flatMap { try? name.parseWords($0) } ?? []
        }
        guard !lists[0].isEmpty || !lists[1].isEmpty || DoorAddress.isRemote(port) else { return "" }
        guard let file = lists[2].first else {
            throw CommandError(
                .configurationError,
                "the port of this bus needs a token, because the bus has other users or clients; name a file with one "
                    + "in `http-tokens`, or a Unix socket in `http` for `curl --unix-socket`")
        }
        let token = try InputFile.read(file, atMost: Self.maximumTokenFileBytes).prefix { $0.isVisible }
        return "earshot:\(PercentEncoding.encoded(token) { $0.isLetter || $0.isDigit })@"
    }
}
