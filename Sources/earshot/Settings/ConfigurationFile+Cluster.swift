internal import TOML

/// Key of a configuration file for the cluster of the bus: `cluster = "cluster.toml"`. A path is relative to the folder of
/// the file. It is no setting, so that no client can connect a bus to a cluster.
extension ConfigurationFile {
    static let cluster = "cluster"
    /// Maximum length of the path in bytes.
    private static let mostBytes = 4_096

    /// Returns the path of the cluster's file; nil if the file names none, or does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func cluster(_ path: String) throws(CommandError) -> String? {
        guard let value = try TOMLFile.table(path)?[cluster] else { return nil }
        return try located(value, path)
    }

    /// Returns the path in a value of the key.
    static func located(_ value: TOMLValue, _ path: String) throws(CommandError) -> String {
        guard let file = value.string, (1...mostBytes).contains(file.utf8.count), !file.utf8.contains(0) else {
            throw commandError(
                path,
                "\(cluster) must be the path of a file, such as \(cluster) = \"cluster.toml\"; see `earshot cluster new`"
            )
        }
        return file.hasPrefix("/") ? file : "\(KeyFile.folder(of: path))/\(file)"
    }
}
