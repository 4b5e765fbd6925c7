internal import EarshotWire

/// Pattern of host names: `example.org` matches one host, `*.example.org` all subdomains but not the domain itself, `*`
/// all hosts.
public struct HostPattern: Hashable, Sendable, CustomStringConvertible {
    /// Pattern in lower case, without a trailing dot.
    public let description: String

    /// - Returns: nil for other text. A numeric address is not a name: use an `IPNetwork`.
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
        let host = url.origin.withoutFinalDot.host
        guard !host.isEmpty else { return nil }
        description = isWildcard ? "*." + host : host
    }

    /// Whether the pattern matches all hosts.
    var isEverything: Bool { description == "*" }

    /// Whether the pattern matches only one host.
    var isSingle: Bool { !description.utf8.starts(with: "*".utf8) }

    /// Returns whether the pattern matches `host`.
    ///
    /// - Parameter host: Host in lower case, without a trailing dot.
    func matches(_ host: String) -> Bool {
        if isEverything { return true }
        if isSingle { return host == description }
        let suffix = description.utf8.dropFirst()
        return host.utf8.suffix(suffix.count).elementsEqual(suffix)
    }
}
