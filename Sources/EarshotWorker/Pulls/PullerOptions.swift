public import EarshotLoop

/// Start options of a puller.
public struct PullerOptions: Sendable {
    /// Number of concurrent pulls. Each large body needs two descriptors, and a small one none.
    public static let slots = 256

    /// Path of the broker's socket `work`.
    public var workPath: String
    /// Hexadecimal secret of the supervisor; nil without one.
    public var secret: String?
    /// Process ID of the parent, with which this process ends; nil for none.
    public var parentPid: Int32?
    /// Makes the connections to the other nodes. Called once, on the main thread.
    public var makeNetwork: @Sendable (EventLoop) throws -> any NodeNetwork = { _ in
        preconditionFailure("a puller without a network")
    }

    public init(workPath: String) { self.workPath = workPath }
}
