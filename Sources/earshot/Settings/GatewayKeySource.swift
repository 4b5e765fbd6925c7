internal import EarshotGateway

/// File from which a gateway reads its keys: that of the clients, or that of a cluster.
enum GatewayKeySource: Equatable {
    /// File of the keys of clients and workers on other machines.
    case keys(String)
    /// File of a cluster, whose nodes share one key.
    case cluster(String)

    /// Absolute path of the file.
    var path: String {
        switch self {
        case .keys(let path), .cluster(let path): path
        }
    }

    /// Options of `earshot gateway` for this file.
    var arguments: [String] {
        switch self {
        case .keys(let path): ["--keys", path]
        case .cluster(let path): ["--cluster", path]
        }
    }

    /// Name of the process in its log.
    var label: String {
        switch self {
        case .keys: "gateway"
        case .cluster: "node-gateway"
        }
    }

    /// Reads the file.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    func read() throws(CommandError) -> GatewayKeys {
        switch self {
        case .keys(let path): try KeyFile(path).keys()
        case .cluster(let path): try ClusterFile(path).gatewayKeys(path)
        }
    }
}
