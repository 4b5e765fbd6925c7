/// SANDBOX: the parts of a worker's sandbox that took effect.
public struct SandboxParts: Equatable, Sendable {
    /// Highest accepted version of Landlock's interface. Linux 6.18 has 7.
    static let maximumLandlockVersion = 1_000

    /// Version of Landlock's interface; nil without Landlock.
    public var landlockVersion: Int?
    /// Whether a filter of system calls is installed.
    public var filtersSystemCalls = false
    /// Reason why a part is missing; nil if none is.
    public var missingPartReason: String?

    public init() {}

    /// Whether both parts took effect.
    public var isComplete: Bool { landlockVersion != nil && filtersSystemCalls }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(0)
        for (name, value) in reader.fields {
            switch name {
            case "landlock":
                landlockVersion = try HeadReader.parseInteger(
                    value, in: 1...Self.maximumLandlockVersion, named: "landlock")
            case "seccomp": filtersSystemCalls = try HeadReader.parseFlag(value, named: "seccomp")
            case "error": missingPartReason = value.string
            default: break
            }
        }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("SANDBOX")
        writer.writeField("landlock", landlockVersion)
        writer.writeField("seccomp", if: filtersSystemCalls, "yes")
        writer.writeField("error", missingPartReason)
        return writer.finished()
    }
}

extension SandboxParts: CustomStringConvertible {
    /// The parts, such as `landlock 7 and seccomp`; `none` without any.
    public var description: String {
        let parts = (landlockVersion.map { ["landlock \($0)"] } ?? []) + (filtersSystemCalls ? ["seccomp"] : [])
        return parts.isEmpty ? "none" : parts.joined(separator: " and ")
    }
}
