internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Options for the bus of a client command: one of this machine, or one on a network with its keys.
struct BusOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Runtime directory of the broker.", valueName: "dir"), completion: .directory)
    var runtime: String?

    @Option(
        help: ArgumentHelp(
            "Bus on a network, tcp://HOST:PORT; several in the order of preference, separated by commas, or repeated.",
            valueName: "address"))
    var bus: [String] = []

    @Option(
        help: ArgumentHelp("File with the key of this client, for --bus.", valueName: "file"), completion: .file())
    var busKey: String?

    // A key may begin with a hyphen.
    @Option(
        parsing: .unconditionalSingleValue,
        help: ArgumentHelp(
            "Public key of the bus, or its file; for several buses one for all, or one each.", valueName: "key"),
        completion: .file())
    var serverKey: [String] = []

    func validate() throws {
        try PathCheck.check([("--runtime", runtime), ("--bus-key", busKey)])
        for (option, value) in [("--bus", bus), ("--server-key", serverKey)] where value.contains("") {
            throw ValidationError("\(option): the value is empty; give one, or omit the option")
        }
        guard runtime == nil || bus.isEmpty else {
            throw ValidationError("--runtime and --bus exclude each other; give one of them")
        }
    }

    /// Options of a command line without any of them.
    static var defaults: BusOptions {
        var options = BusOptions()
        (options.runtime, options.bus, options.busKey, options.serverKey) = (nil, [], nil, [])
        return options
    }

    /// Returns the bus that a client uses.
    ///
    /// The order is --runtime, --bus, `EARSHOT_BUS`, `EARSHOT_RUNTIME`, `bus` of a configuration file, and the user's
    /// bus.
    func busLocation() throws -> BusLocation {
        if let choice = try networkBuses() { return try choice.busLocation() }
        return .local(try RuntimeFolder.ofBus(named: runtime))
    }

    /// Returns the buses on a network that a client uses; nil for a bus of this machine.
    func networkBuses() throws(CommandError) -> NetworkChoice? {
        guard runtime == nil else { return nil }
        let choice = NetworkChoice(
            buses: bus.isEmpty ? nil : bus.flatMap(BusEndpoint.words), keyFile: busKey.map(Folder.absolutePath),
            serverKeys: serverKey.isEmpty ? nil : serverKey.flatMap(NetworkChoice.splitAtCommas)
        ).fillingGaps(from: .fromEnvironment)
        if choice.buses == nil, Environment.value("EARSHOT_RUNTIME") != nil { return nil }
        guard !choice.isComplete else { return choice }
        let merged = choice.fillingGaps(from: try Configuration.clientConfiguration.networkBuses())
        return merged.buses == nil ? nil : merged
    }
}

/// Addresses and keys of buses on a network, from one source or several.
struct NetworkChoice: Equatable {
    /// Addresses in the order of preference.
    var buses: [String]?
    /// Absolute path of the client's key file.
    var keyFile: String?
    /// Public keys of the buses, or their files.
    var serverKeys: [String]?

    /// Whether no other source can add to it.
    var isComplete: Bool { buses != nil && keyFile != nil && serverKeys != nil }

    /// Values of `EARSHOT_BUS`, `EARSHOT_BUS_KEY` and `EARSHOT_SERVER_KEY`.
    static var fromEnvironment: NetworkChoice {
        NetworkChoice(
            buses: Environment.value("EARSHOT_BUS").map(BusEndpoint.words),
            keyFile: Environment.value("EARSHOT_BUS_KEY").map(Folder.absolutePath),
            serverKeys: Environment.value("EARSHOT_SERVER_KEY").map(BusEndpoint.words))
    }

    /// Splits the value of an option at its commas. Paths may contain spaces.
    static func splitAtCommas(_ text: String) -> [String] { text.split(separator: ",").map { String($0) } }

    /// Returns the absolute path of a server key's file, or the key itself.
    static func absoluteServerKey(_ serverKey: String, in folder: String) -> String {
        let path = Folder.absolutePath(serverKey.hasPrefix("/") ? serverKey : "\(folder)/\(serverKey)")
        return unsafe access(ByteText.cString(path), F_OK) == 0 ? path : serverKey
    }

    /// Returns the choice with its missing values from a source of lower precedence.
    func fillingGaps(from other: NetworkChoice) -> NetworkChoice {
        NetworkChoice(
            buses: buses ?? other.buses, keyFile: keyFile ?? other.keyFile, serverKeys: serverKeys ?? other.serverKeys)
    }

    /// Returns the location of the buses, with their keys.
    ///
    /// - Throws: `CommandError` if a part is missing or unusable.
    func busLocation() throws(CommandError) -> BusLocation {
        let keys = (serverKeys ?? []).map { Self.absoluteServerKey($0, in: ".") }
        do throws(ClientError) {
            let endpoints = try BusEndpoint.list(buses ?? [], keyFile: keyFile, serverKeys: keys)
            let arguments = [
                "--bus=\((buses ?? []).joined(separator: ","))", "--bus-key=\(keyFile ?? "")",
                "--server-key=\(keys.joined(separator: ","))",
            ]
            return .network(endpoints, arguments: arguments)
        } catch {
            throw CommandError(error)
        }
    }
}
