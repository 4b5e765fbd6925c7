internal import RESP

/// Lines `NAME:VALUE` of a server's answer to INFO, for `EngineSession` and `EngineProbe`.
struct ServerInfo {
    private var values: [Substring: Substring] = [:]

    /// Nil for a reply of another form.
    init?(_ reply: Reply) {
        guard let text = reply.text else { return nil }
        for line in text.split(whereSeparator: \.isNewline) {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { values[parts[0]] = parts[1] }
        }
    }

    subscript(name: Substring) -> Substring? { values[name] }

    /// Replicas that a primary names: host and port of each.
    var replicas: [(host: Substring, port: Substring)] {
        values.keys.sorted().filter { $0.hasPrefix("slave") && Int($0.dropFirst(5)) != nil }.compactMap { name in
            let parts = (values[name] ?? "").split(separator: ",")
            func value(_ key: String) -> Substring? { parts.first { $0.hasPrefix(key) }?.dropFirst(key.count) }
            guard let host = value("ip="), let port = value("port=") else { return nil }
            return (host, port)
        }
    }

    /// Whether a primary accepts writes without a replica.
    ///
    /// - Parameter expected: whether it should have replicas at present.
    func writesWithoutReplicas(expected: Bool) -> Bool {
        // The second line is present only while the setting is.
        (values["connected_slaves"] != "0" || expected) && values["min_slaves_good_slaves"] == nil
    }

    /// Whether the server evicts keys when its memory is full. Without `maxmemory` no policy evicts any.
    var evicts: Bool {
        guard let most = values["maxmemory"], let policy = values["maxmemory_policy"] else { return false }
        return most != "0" && policy != "noeviction"
    }
}
