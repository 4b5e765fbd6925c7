/// Whether some hosts or addresses may be connected to.
public struct AddressRule: Hashable, Sendable, CustomStringConvertible {
    /// Whom the rule is for.
    public enum Subject: Hashable, Sendable {
        case network(IPNetwork)
        case host(HostPattern)
    }

    public let subject: Subject
    public let isAllowing: Bool

    /// Whether the rule comes from a preset, and so yields to one that somebody wrote for the same.
    public let isPreset: Bool

    public init(_ subject: Subject, isAllowing: Bool, isPreset: Bool = false) {
        self.subject = subject
        self.isAllowing = isAllowing
        self.isPreset = isPreset
    }

    /// `deny 10.0.0.0/8`, as `AddressPolicy` reads it.
    public var description: String {
        "\(isAllowing ? "allow" : "deny") \(subject)"
    }

    /// How much the rule is about, over both kinds of subject.
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

    /// Whether this rule goes before another of the same kind that matches too: the longer subject, then what somebody
    /// wrote, then what denies.
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
