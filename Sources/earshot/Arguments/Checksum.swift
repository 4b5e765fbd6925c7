internal import ArgumentParser
internal import EarshotWire

/// Value of --checksum: the expected SHA-256 of a body.
struct Checksum: ExpressibleByArgument {
    /// Accepted names of the algorithm, each with its separator.
    private static let prefixes = ["sha256:", "sha-256:", "sha-256=", "sha256="]
    static var defaultCompletionKind: CompletionKind { ShellCompletion.none }

    /// 64 lower-case hexadecimal digits.
    let hex: String

    /// Nil for other algorithms and malformed digits.
    init?(argument: String) {
        let text = argument.lowercased()
        guard let prefix = Self.prefixes.first(where: text.hasPrefix) else { return nil }
        hex = String(text.dropFirst(prefix.count))
        guard SpoolName.isContent(hex) else { return nil }
    }
}
