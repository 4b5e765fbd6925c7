/// Digests of the settings that should be equal on all nodes, as a node reports them: four words of hexadecimal digits,
/// separated by full stops.
///
/// ```
/// 3f2a91c0.00d1c2b3.9a8b7c6d.44e5f6a7        address policy, limits, rules for origins, version
/// ```
struct NodeSettings: Equatable {
    private static let names = ["address policy", "limits", "rules for origins", "version"]

    private let parts: [Substring]

    /// Nil for any other text, such as that of another version.
    init?(_ text: String) {
        parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == Self.names.count, parts.allSatisfy({ !$0.isEmpty }) else { return nil }
    }

    /// Names of the settings that differ.
    func differences(from other: NodeSettings) -> [String] {
        zip(Self.names, zip(parts, other.parts)).filter { $1.0 != $1.1 }.map(\.0)
    }
}
