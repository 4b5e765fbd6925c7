internal import EarshotLoop
internal import EarshotWorker
internal import Glibc

/// Children of a bus that is a node of a cluster: the node gateway, which serves bodies to the other nodes, and the puller,
/// which fetches bodies from them.
///
/// SIGHUP makes the node gateway read the cluster's file again. All other changes of that file need a restart.
extension Supervisor {
    func startNodeGateway(_ slot: ChildSlot) throws(SystemError) {
        guard let cluster = plan.cluster else { preconditionFailure("a bus without a cluster has a node gateway") }
        try startGateway(slot, at: [cluster.listener], .cluster(cluster.path))
    }

    func startPuller(_ slot: ChildSlot) throws(SystemError) {
        guard let cluster = plan.cluster else { preconditionFailure("a bus without a cluster has a puller") }
        // A private bus has no cluster, so the puller is a new program, which reads the rest of its options itself.
        var options = PullerOptions(workPath: "")
        options.parentPid = getpid()
        try start(slot, .puller(options, cluster: cluster.path), inheriting: [])
    }
}
