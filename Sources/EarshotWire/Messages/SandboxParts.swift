/// SANDBOX: the parts of a worker's sandbox that took effect.
public struct SandboxParts: Equatable, Sendable {
    /// Highest accepted version of Landlock's interface. Linux 6.18 has 7.
    static let mostVersion = 1_000

    /// Version of Landlock's interface; nil without Landlock.
    public var landlock: Int?
    /// Whether a filter of system calls is installed.
    public var filtersCalls = false
    /// Reason why a part is missing; nil if none is.
    public var error: String?

    public init() {}

    /// Whether both parts took effect.
    public var isComplete: Bool { landlock != nil && filtersCalls }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(0)
        for (name, value) in reader.fields {
            switch name {
            case "landlock": landlock = try HeadReader.integer(value, in: 1...Self.mostVersion, "landlock")
            case "seccomp": filtersCalls = try HeadReader.flag(value, "seccomp")
            case "error": error = value.string
            default: break
            }
        }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("SANDBOX")
        writer.field("landlock", landlock)
        writer.field("seccomp", if: filtersCalls, "yes")
        writer.field("error", error)
        return writer.finished()
    }
}

extension SandboxParts: CustomStringConvertible {
    /// The parts, such as `landlock 7 and seccomp`; `none` without any.
    public var description: String {
        let parts = (landlock.map { ["landlock \($0)"] } ?? []) + (filtersCalls ? ["seccomp"] : [])
        return parts.isEmpty ? "none" : parts.joined(separator: " and ")
    }
}
