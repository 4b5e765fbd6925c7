/// One result of a check of a cluster.
public struct ClusterFinding: Hashable, Sendable {
    /// Weight of a finding.
    public enum Level: String, Sendable {
        case good = "ok"
        /// The cluster works, but not as well as it could.
        case warning
        /// The node cannot be a member, or will not stay one.
        case fault
    }

    /// Weight.
    public let level: Level
    /// File, address or node that was checked.
    public let subject: String
    /// Observation.
    public let sentence: String
    /// Next step of the operator; nil for none.
    public let advice: String?

    /// A finding without a next step.
    public static func good(_ subject: String, _ sentence: String) -> ClusterFinding {
        ClusterFinding(.good, subject, sentence, nil)
    }

    /// A finding that the operator should mend.
    public static func warning(_ subject: String, _ sentence: String, do advice: String) -> ClusterFinding {
        ClusterFinding(.warning, subject, sentence, advice)
    }

    /// A finding that the operator must mend.
    public static func fault(_ subject: String, _ sentence: String, do advice: String) -> ClusterFinding {
        ClusterFinding(.fault, subject, sentence, advice)
    }

    private init(_ level: Level, _ subject: String, _ sentence: String, _ advice: String?) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
        self.advice = advice
    }
}
