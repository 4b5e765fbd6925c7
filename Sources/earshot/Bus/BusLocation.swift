internal import EarshotClient
internal import EarshotLoop

/// Bus of a client command: one of this machine, or several on a network.
enum BusLocation {
    case local(RuntimeFolder)
    /// Buses in the order of preference, at least one, with the options that select them again in another process.
    case network([BusEndpoint], arguments: [String])

    /// Endpoints in the order of preference.
    var endpoints: [BusEndpoint] {
        switch self {
        case .local(let folder): [BusEndpoint(folder)]
        case .network(let endpoints, _): endpoints
        }
    }

    /// Options that select the bus in another process, which may have another working directory.
    var arguments: [String] {
        switch self {
        case .local(let folder): ["--runtime=\(Folder.absolutePath(folder.path))"]
        case .network(_, let arguments): arguments
        }
    }

    /// Location for messages: `in DIR` or `at tcp://HOST:PORT`.
    var locationPhrase: String {
        switch self {
        case .local(let folder): "in \(folder.path)"
        case .network(let endpoints, _): "at \(endpoints.map(\.description).joined(separator: " or "))"
        }
    }

    /// Failing children of the bus, as far as this machine knows them.
    var failingChildren: [String] {
        switch self {
        case .local(let folder): FailureReport(folder).sentences()
        case .network: []
        }
    }

    /// Whether a broker serves the bus. A bus on a network counts as served, because only a connection can check it.
    ///
    /// - Throws: `CommandError` for an untrusted directory.
    func isServed() throws(CommandError) -> Bool {
        switch self {
        case .local(let folder):
            do throws(ClientError) { return try folder.hasBroker() } catch {
                throw CommandError(.noBroker, "cannot use a broker: \(error.description)")
            }
        case .network: return true
        }
    }
}
