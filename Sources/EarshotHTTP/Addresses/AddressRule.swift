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
        case group
        /// One host or one address.
        case single

        static func < (left: Breadth, right: Breadth) -> Bool { left.rawValue < right.rawValue }
    }

    var breadth: Breadth {
        switch subject {
        case .network(let network): network.isSingle ? .single : network.prefix == 0 ? .everything : .group
        case .host(let pattern): pattern.isSingle ? .single : pattern.isEverything ? .everything : .group
        }
    }

    /// Returns whether this rule takes precedence over another matching rule of the same kind: the longer subject, then
    /// a user's rule, then a denial.
    func precedes(_ other: AddressRule) -> Bool {
        if length != other.length { return length > other.length }
        if isPreset != other.isPreset { return !isPreset }
        return !isAllowing && other.isAllowing
    }

    private var length: Int {
        switch subject {
        case .network(let network): network.prefix
        case .host(let pattern): pattern.description.utf8.count + (pattern.isSingle ? HTTPLimits.hostBytes : 0)
        }
    }
}
