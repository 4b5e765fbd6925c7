internal import EarshotLoop
internal import TOML

/// Keys of a configuration file for the commands of clients: `bus = "tcp://example.org:5765"`, `bus-key = "client.key"` and
/// `server-key = "…"`. A path is relative to the folder of the file.
extension ConfigurationFile {
    static let bus = "bus"
    static let busKey = "bus-key"
    static let serverKey = "server-key"
    /// Maximum number of buses to fail over between, and of bytes of each value.
    private static let most = (buses: 64, bytes: 4_096)

    /// Returns the buses on a network that the file names; nil if the file does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func network(_ path: String) throws(CommandError) -> NetworkChoice? {
        guard let table = try TOMLFile.table(path) else { return nil }
        return try network(table, path)
    }

    static func network(_ table: TOMLTable, _ path: String) throws(CommandError) -> NetworkChoice {
        let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        var choice = NetworkChoice()
        choice.buses = try texts(table[bus], bus, "tcp://example.org:5765", path)
        choice.serverKeys = try texts(table[serverKey], serverKey, "server.pub", path)?.map {
            NetworkChoice.located($0, in: folder)
        }
        if let value = table[busKey] {
            guard let file = value.string, !file.isEmpty, file.utf8.count <= most.bytes else {
                throw commandError(path, "\(busKey) must be the path of a key file, such as \(busKey) = \"client.key\"")
            }
            choice.keyFile = file.hasPrefix("/") ? file : "\(folder)/\(file)"
        }
        return choice
    }

    /// Returns the texts of a string or of an array of strings; nil without a value.
    private static func texts(
        _ value: TOMLValue?, _ key: String, _ example: String, _ path: String
    ) throws(CommandError) -> [String]? {
        guard let value else { return nil }
        let texts = value.string.map { [$0] } ?? value.array.map { array in array.map { $0.string ?? "" } } ?? []
        guard (1...most.buses).contains(texts.count),
            texts.allSatisfy({ (1...most.bytes).contains($0.utf8.count) && !$0.contains(",") })
        else {
            throw commandError(path, "\(key) must be a string or a list of strings, such as \(key) = \"\(example)\"")
        }
        return texts
    }
}
