internal import CLinux
internal import Glibc

/// A process this one started, and has to reap.
///
/// The child has a process group of its own (Ctrl-C at the terminal is the parent's affair), no blocked signals,
/// the default action for each, its ``Streams``, and of the other descriptors only those it is given.
public final class ChildProcess {
    /// How a process ended.
    public enum Exit: Equatable, Sendable, CustomStringConvertible {
        case code(Int32)
        case signal(Int32)

        public var description: String {
            switch self {
            case .code(let code): "exit code \(code)"
            case .signal(let signal): "signal \(signal)"
            }
        }
    }

    /// What a child has as its standard input, output and error.
    public struct Streams: Sendable {
        /// Nil for `/dev/null`.
        public var input: Int32?
        /// Nil for the parent's standard error.
        public var output: Int32?
        /// Nil for the parent's.
        public var errors: Int32?

        public init(input: Int32? = nil, output: Int32? = nil, errors: Int32? = nil) {
            self.input = input
            self.output = output
            self.errors = errors
        }
    }

    /// The path of the file of the program that runs here: proc(5).
    public static let thisProgram = "/proc/self/exe"

    /// Its number, which stands for it until it is reaped.
    public let pid: Int32
    private let process: ProcessDescriptor
    private var exit: Exit?

    private init(pid: Int32, process: ProcessDescriptor) {
        self.pid = pid
        self.process = process
    }

    /// Readable when the child has ended; then call ``reap()``.
    public var descriptor: Int32 { process.descriptor }

    /// Starts the program at `path`.
    ///
    /// - Parameters:
    ///   - arguments: from the program's own name on.
    ///   - streams: other descriptors than 0, 1 and 2 of the parent.
    ///   - inherited: descriptors the child gets under the same numbers.
    ///   - variables: what its environment has besides this process's, or in the place of that, by name.
    public static func spawn(
        _ path: String, _ arguments: [String], streams: Streams = Streams(), inheriting inherited: [Int32] = [],
        variables: [String: String] = [:]
    ) throws(SystemError) -> ChildProcess {
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        if let input = streams.input {
            unsafe posix_spawn_file_actions_adddup2(&actions, input, 0)
        } else {
            unsafe posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        }
        unsafe posix_spawn_file_actions_adddup2(&actions, streams.output ?? 2, 1)
        if let errors = streams.errors { unsafe posix_spawn_file_actions_adddup2(&actions, errors, 2) }
        // dup2 onto itself takes close-on-exec off, in the child alone.
        for descriptor in inherited { unsafe posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor) }

        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        var all = sigset_t()
        unsafe sigemptyset(&none)
        unsafe sigfillset(&all)
        unsafe posix_spawnattr_setsigmask(&attributes, &none)
        unsafe posix_spawnattr_setsigdefault(&attributes, &all)
        unsafe posix_spawnattr_setpgroup(&attributes, 0)
        let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP
        unsafe posix_spawnattr_setflags(&attributes, Int16(flags))

        var strings: [UnsafeMutablePointer<CChar>?] = unsafe arguments.map { unsafe strdup(ByteText.path($0)) } + [nil]
        defer { unsafe strings.forEach { unsafe free($0) } }
        var environment: [UnsafeMutablePointer<CChar>?] = unsafe environment(with: variables) + [nil]
        defer { unsafe environment.forEach { unsafe free($0) } }
        var pid: pid_t = 0
        let code = unsafe posix_spawn(&pid, ByteText.path(path), &actions, &attributes, &strings, &environment)
        guard code == 0 else { throw SystemError("posix_spawn", number: code) }
        return try owned(pid)
    }

    /// Starts a child that goes on in a copy of this process and runs `body`: nothing has to be loaded and linked for
    /// it, and no arguments have to be read.
    ///
    /// What this process holds is in the copy too; its descriptors are closed there as with ``spawn(_:_:inheriting:)``,
    /// so `body` begins anew, as a program does. What this process does at its end the copy does not do at its own. A
    /// copy that cannot be made ready ends with code 127.
    ///
    /// - Parameter body: answers the exit code.
    /// - Returns: nil in a process that has started other threads: a copy has none of them, and holds their locks for
    ///   ever. And with a kernel that cannot close what the copy is not to have.
    public static func fork(
        inheriting inherited: [Int32] = [], _ body: () -> Int32
    ) throws(SystemError) -> ChildProcess? {
        // No descriptor has that number: nothing is closed.
        guard linux_is_single_threaded() != 0, linux_close_range(.max, .max) == 0 else { return nil }
        // Else both processes write it.
        fflush(nil)
        let pid = linux_fork()
        guard pid != 0 else {
            guard becomeChild(inheriting: inherited) else { _exit(127) }
            let code = body()
            fflush(nil)
            _exit(code)
        }
        guard pid > 0 else { throw SystemError("fork") }
        // The child does it as well: it is done before either goes on.
        setpgid(pid, pid)
        return try owned(pid)
    }

    /// signal(7) on Linux; the two that cannot be caught refuse to be changed.
    private static let lastSignal: Int32 = 64
    /// What Swift's runtime catches to tell where a program crashed. In a copy that works as well.
    private static let crashes = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGTRAP]

    /// Makes a copy of the parent what a child is.
    private static func becomeChild(inheriting inherited: [Int32]) -> Bool {
        setpgid(0, 0)
        for number in 1...lastSignal where !crashes.contains(number) { signal(number, SIG_DFL) }
        let input = unsafe open("/dev/null", O_RDONLY)
        guard input >= 0, dup2(input, 0) == 0, dup2(2, 1) == 1 else { return false }
        var first: Int32 = 3
        for kept in inherited.sorted() where kept >= first {
            if kept > first, linux_close_range(UInt32(first), UInt32(kept - 1)) != 0 { return false }
            first = kept + 1
        }
        guard linux_close_range(UInt32(first), .max) == 0 else { return false }
        var none = sigset_t()
        unsafe sigemptyset(&none)
        return unsafe sigprocmask(SIG_SETMASK, &none, nil) == 0
    }

    private static func owned(_ pid: Int32) throws(SystemError) -> ChildProcess {
        do throws(SystemError) {
            return ChildProcess(pid: pid, process: try ProcessDescriptor(pid: pid))
        } catch {
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
    }

    /// This process's environment with other variables, as C has it; its receiver's to free.
    private static func environment(with variables: [String: String]) -> [UnsafeMutablePointer<CChar>] {
        var strings: [UnsafeMutablePointer<CChar>] = unsafe []
        var next = unsafe linux_environment()
        while let entry = unsafe next?.pointee {
            let name = unsafe String(cString: entry).prefix { $0 != "=" }
            if variables[String(name)] == nil, let copy = unsafe strdup(entry) { unsafe strings.append(copy) }
            unsafe next = next?.advanced(by: 1)
        }
        for (name, value) in variables {
            if let made = unsafe strdup("\(name)=\(value)") { unsafe strings.append(made) }
        }
        return unsafe strings
    }

    /// Sends a signal to all of the child's process group, its own children among them. Does nothing once it is reaped:
    /// then its number can be another group's.
    public func sendToGroup(_ signal: Int32) {
        if exit == nil { kill(-pid, signal) }
    }

    /// Sends a signal, unless the child has ended.
    @discardableResult
    public func send(_ signal: Int32) -> Bool { process.send(signal) }

    /// How the child ended, or nil while it runs. Frees its entry in the process table.
    public func reap() -> Exit? {
        if let exit { return exit }
        var status: Int32 = 0
        while true {
            let result = unsafe waitpid(pid, &status, WNOHANG)
            if result == 0 { return nil }
            guard result < 0 else { break }
            // ECHILD cannot be told from an end: somebody else has reaped it.
            guard errno == EINTR else { return .code(-1) }
        }
        let ended: Exit =
            linux_wait_exited(status) != 0
            ? .code(linux_wait_exit_code(status)) : .signal(linux_wait_signal(status))
        exit = ended
        return ended
    }
}
