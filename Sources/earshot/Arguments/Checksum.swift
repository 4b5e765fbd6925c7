internal import ArgumentParser

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
        let hex = text.utf8.dropFirst(prefix.utf8.count)
        let isDigit: (UInt8) -> Bool = { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
        guard hex.count == 64, hex.allSatisfy(isDigit) else { return nil }
        self.hex = String(hex) ?? ""
    }
}
