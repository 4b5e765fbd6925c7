public import EarshotLoop

/// Start options of a worker that runs a program for each job, which the command `work` makes.
public struct ProgramOptions: Sendable {
    /// Maximum number of concurrent jobs, for which the default limit of descriptors, 1,024, suffices.
    public static let mostSlots = 200

    /// Number of descriptors for so many jobs: four each, and those of the loop, the broker and the log.
    static func descriptors(slots: Int) -> Int { 16 + 4 * slots }

    /// Number of jobs for which the descriptors suffice.
    static func slots(descriptors: Int) -> Int { (descriptors - 16) / 4 }

    /// Makes the way to a broker on another machine, and reports the error that ends it.
    public typealias MakeTunnel = @Sendable (EventLoop, _ onFailure: @escaping (any Error) -> Void) -> any BrokerTunnel

    /// Path of the broker's socket `work`; unused with `makeTunnel`.
    public var workPath: String
    /// Nil for a broker of this machine.
    public var makeTunnel: MakeTunnel?
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

/// Way of a worker to a broker on another machine.
public protocol BrokerTunnel: AnyObject {
    /// Returns a new socket at whose other end a broker answers. The worker closes it.
    func connect() throws(SystemError) -> Int32
    /// Handles the acceptance of the worker by a broker.
    func accepted()
    /// Sends the last messages of the worker. The loop must not run.
    func close()
}
