/// What a child of this process runs.
public enum ChildProgram: Sendable {
    /// The program at a path.
    case file(String)
    /// This program from its arguments on, its name not among them. A copy of this process runs it, which spares the
    /// time to load and link it; where no copy can be made, the program's file.
    case this(main: @Sendable ([String]) -> Never)

    /// The file of the program that runs here: proc(5).
    public static let thisFile = ChildProgram.file("/proc/self/exe")

    /// Starts it, see ``ChildProcess``.
    ///
    /// - Parameters:
    ///   - arguments: from the program's own name on.
    ///   - inherited: descriptors the child gets under the same numbers.
    public func start(
        _ arguments: [String], inheriting inherited: [Int32] = []
    ) throws(SystemError) -> ChildProcess {
        switch self {
        case .file(let path): return try ChildProcess.spawn(path, arguments, inheriting: inherited)
        case .this(let main):
            let copy = try ChildProcess.fork(inheriting: inherited) { () -> Never in
                main(Array(arguments.dropFirst()))
            }
            if let copy { return copy }
            return try ChildProgram.thisFile.start(arguments, inheriting: inherited)
        }
    }
}
