internal import EarshotClient
internal import EarshotLoop
internal import EarshotWorker

/// Connections of the puller to the node gateways of the other nodes, one for each node. They are opened on demand.
final class NodeConnections: NodeNetwork {
    private let key: BusKey
    private let publicKey: String
    private let network: Network
    private let loop: EventLoop
    private var connections: [NodeAddress: NodeConnection] = [:]

    /// - Parameter cluster: its key pair is that of both ends.
    /// - Throws: `ClientError` if libzmq is missing.
    init(_ cluster: ClusterFile, loop: EventLoop) throws(ClientError) {
        key = try BusKey(name: cluster.name, publicKey: cluster.publicKey, secretKey: cluster.secretKey)
        publicKey = cluster.publicKey
        network = try Network(.short)
        self.loop = loop
    }

    func request(_ request: PullRequest, for receiver: any PullReceiver) {
        do {
            try connection(to: request.node).request(request, for: receiver)
        } catch {
            // Descriptors or memory have run out. The receiver is not called from inside this call.
            loop.setTimer(after: .zero) { receiver.ended(.unreachable("\(error)")) }
        }
    }

    func cancel(_ request: PullRequest) { connections[request.node]?.cancel(request) }

    func close() {
        for connection in connections.values { connection.close() }
        connections = [:]
    }

    private func connection(to node: NodeAddress) throws -> NodeConnection {
        if let connection = connections[node] { return connection }
        let endpoint = try BusEndpoint(node.description, key: key, serverKey: publicKey)
        let connection = try NodeConnection(endpoint, network, loop: loop) { [weak self] ended in
            if self?.connections[node] === ended { self?.connections[node] = nil }
        }
        connections[node] = connection
        return connection
    }
}
