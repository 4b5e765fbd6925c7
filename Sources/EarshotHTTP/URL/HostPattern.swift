/// Whom a rule is for, by name: `example.org`, one host; `*.example.org`, all hosts below a name, but not that; `*`,
/// all.
public struct HostPattern: Hashable, Sendable, CustomStringConvertible {
    /// Lower-case, without a dot at its end.
    public let description: String

    /// - Returns: nil for text that is none of the three. A number is no name: addresses are for an `IPNetwork`.
    public init?(_ text: String) {
        guard text != "*" else {
            description = text
            return
        }
        let isWildcard = text.utf8.starts(with: "*.".utf8)
        let name = isWildcard ? text.dropFirst(2) : text[...]
        let isName = name.utf8.allSatisfy { byte in
            byte.isLetter || byte.isDigit || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
                || byte == UInt8(ascii: ".")
        }
        guard isName, let url = try? FetchURL("http://\(name)/"), url.address == nil else { return nil }
        let host = url.origin.host
        guard !host.isEmpty else { return nil }
        description = isWildcard ? "*." + host : host
    }

    /// Whether the pattern is for all hosts.
    var isEverything: Bool { description == "*" }

    /// Whether the pattern is for one host.
    var isSingle: Bool { !description.utf8.starts(with: "*".utf8) }

    /// Whether the pattern is for `host`.
    ///
    /// - Parameter host: Lower-case, without a dot at its end.
    func matches(_ host: String) -> Bool {
        if isEverything { return true }
        if isSingle { return host == description }
        let suffix = description.utf8.dropFirst()
        return host.utf8.suffix(suffix.count).elementsEqual(suffix)
    }
}
