internal import ArgumentParser
internal import EarshotClient

/// Option for the cluster of a bus.
struct ClusterFileOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "File of the cluster that this bus joins, see `earshot cluster new`. A change needs a restart. (default: the key cluster of the configuration file)",
            valueName: "file"),
        completion: .file())
    var cluster: String?

    func validate() throws { try PathCheck.check([("--cluster", cluster)]) }

    /// Returns, by precedence, the absolute path of the option or of the configuration file; nil without a cluster.
    func path(_ configuration: Configuration) throws(CommandError) -> String? {
        if let given { return given }
        return try configuration.cluster()?.file
    }

    /// Absolute path of the option.
    var given: String? { cluster.map(Folder.absolute) }
}
