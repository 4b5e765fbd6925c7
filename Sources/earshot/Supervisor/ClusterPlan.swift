internal import EarshotGateway

/// Part of a cluster's file that the supervisor needs. Its children read the rest themselves.
struct ClusterPlan {
    /// Absolute path of the file.
    let path: String
    /// Address at which the node gateway listens.
    let listener: GatewayAddress

    /// Reads the file.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    init(_ path: String) throws(CommandError) {
        self.path = path
        listener = try ClusterFile(path).listener()
    }
}
