/// What a worker that runs a program for each job is told at its start.
public struct ProgramOptions: Sendable {
    /// Jobs at once, at most: each has four descriptors, and a process has 1,024 without asking for more.
    public static let mostSlots = 200

    /// The path of the broker's socket `work`.
    public var workPath: String
    /// What it serves, 1 to 16; see `Ready.isScheme`.
    public var schemes: [String]
    /// Jobs at once, 1 to `mostSlots`.
    public var slots: Int
    /// The program's path.
    public var program: String
    /// Its arguments, from its own name on; the URL follows them.
    public var arguments: [String]
    /// What its environment has besides this process's.
    public var variables: [String: String] = [:]
    /// What is said of each body; nil for nothing.
    public var contentType: String?

    public init(workPath: String, schemes: [String], slots: Int, program: String, arguments: [String]) {
        self.workPath = workPath
        self.schemes = schemes
        self.slots = slots
        self.program = program
        self.arguments = arguments
    }
}

/// The broker does not take the worker.
public struct ProgramWorkerRefused: Error, CustomStringConvertible {
    /// What it said.
    public let description: String
}
