/// Start options of a worker that runs a program for each job.
public struct ProgramOptions: Sendable {
    /// Maximum number of concurrent jobs. Each needs four descriptors, and the default limit of a process is 1,024.
    public static let mostSlots = 200

    /// Path of the broker's socket `work`.
    public var workPath: String
    /// Schemes to serve, 1 to 16; see `Ready.isScheme`.
    public var schemes: [String]
    /// Number of concurrent jobs, 1 to `mostSlots`.
    public var slots: Int
    /// Path of the program.
    public var program: String
    /// Argument vector, starting with the program's name. The URL is appended.
    public var arguments: [String]
    /// Environment variables added to those of this process.
    public var variables: [String: String] = [:]
    /// Content type of each body; nil for none.
    public var contentType: String?

    public init(workPath: String, schemes: [String], slots: Int, program: String, arguments: [String]) {
        self.workPath = workPath
        self.schemes = schemes
        self.slots = slots
        self.program = program
        self.arguments = arguments
    }
}

/// The broker's refusal of the worker.
public struct ProgramWorkerRefused: Error, CustomStringConvertible {
    /// The broker's reason.
    public let description: String
}
