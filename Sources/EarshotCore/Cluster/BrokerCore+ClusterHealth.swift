/// The health of a node's part in its cluster, between the core and the shell.
extension BrokerCore {
    /// Removes and returns the lines for the log.
    public mutating func takeClusterNotices() -> [ClusterNotice] { records.cluster?.value.health.takeNotices() ?? [] }

    /// Addresses of other nodes whose bodies cannot be read at present, which the shell reports to all.
    public var unreadableNodes: Set<String> { records.cluster?.value.health.unreadable ?? [] }

    /// Removes and returns addresses of other nodes that the shell must try to connect to.
    public mutating func takeClusterProbes() -> [String] { records.cluster?.value.health.takeProbes() ?? [] }

    /// Handles the end of an attempt to connect to the address of another node.
    ///
    /// - Parameter failure: reason without a connection; nil with one.
    public mutating func clusterProbed(_ address: String, failure: String?, now: Tick) {
        records.cluster?.value.health.probed(address, failure: failure, now: now)
    }

    /// Sets the digests of this node's settings, with which those of the others are compared.
    public mutating func clusterSettingsChanged(_ text: String) {
        records.cluster?.value.health.changed(settings: text)
    }
}
