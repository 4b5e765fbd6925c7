internal import EarshotWire

/// Rule that allows or denies connections to some hosts or addresses.
public struct AddressRule: Hashable, Sendable, CustomStringConvertible {
    /// Hosts or addresses that the rule matches.
    public enum Subject: Hashable, Sendable {
        case network(IPNetwork)
        case host(HostPattern)
    }

    public let subject: Subject
    public let isAllowing: Bool

    /// Whether the rule comes from a preset, so that a user's rule for the same subject takes precedence.
    public let isPreset: Bool

    public init(_ subject: Subject, isAllowing: Bool, isPreset: Bool = false) {
        self.subject = subject
        self.isAllowing = isAllowing
        self.isPreset = isPreset
    }

    /// Text such as `deny 10.0.0.0/8`, as parsed by `AddressPolicy`.
    public var description: String {
        "\(isAllowing ? "allow" : "deny") \(subject)"
    }

    /// Size class of a subject, comparable across both kinds of subjects.
    enum Breadth: Int, Comparable {
        /// `*`, `0.0.0.0/0`, `::/0`.
        case everything
        /// Some hosts or some addresses.
        case multiple
        /// One host or one address.
        case single

        static func < (left: Breadth, right: Breadth) -> Bool { left.rawValue < right.rawValue }
    }

    var breadth: Breadth {
        switch subject {
        case .network(let network):
            network.isSingleAddress ? .single : network.prefixLength == 0 ? .everything : .multiple
        case .host(let pattern):
            pattern.matchesSingleHost ? .single : pattern.matchesEveryHost ? .everything : .multiple
        }
    }

    /// Returns whether this rule takes precedence over another matching rule of the same kind: the longer subject, then
    /// a user's rule, then a denial.
    func precedes(_ other: AddressRule) -> Bool {
        if subjectLength != other.subjectLength { return subjectLength > other.subjectLength }
        if isPreset != other.isPreset { return !isPreset }
        return !isAllowing && other.isAllowing
    }

    private var subjectLength: Int {
        switch subject {
        case .network(let network): network.prefixLength
        case .host(let pattern): pattern.description.utf8.count + (pattern.matchesSingleHost ? HTTPLimits.hostBytes : 0)
        }
    }
}

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
    var matchesEveryHost: Bool { description == "*" }

    /// Whether the pattern matches only one host.
    var matchesSingleHost: Bool { !description.utf8.starts(with: "*".utf8) }

    /// Returns whether the pattern matches `host`.
    ///
    /// - Parameter host: Host in lower case, without a trailing dot.
    func matches(_ host: String) -> Bool {
        if matchesEveryHost { return true }
        if matchesSingleHost { return host == description }
        let suffix = description.utf8.dropFirst()
        return host.utf8.suffix(suffix.count).elementsEqual(suffix)
    }
}
