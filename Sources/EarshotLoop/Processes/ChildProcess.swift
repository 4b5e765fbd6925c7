internal import CLinux
internal import Glibc

/// Child of this process, which this process must reap.
///
/// A child has its own process group, so Ctrl-C at the terminal reaches only the parent. It has no blocked signals,
/// default signal actions, its ``Streams``, and only those other descriptors that it inherits explicitly.
public final class ChildProcess {
    /// Cause of a process's end.
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

    /// Standard input, output and error of a child.
    public struct Streams: Sendable {
        /// Nil for `/dev/null`.
        public var input: Int32?
        /// Nil for the parent's standard error.
        public var output: Int32?
        /// Nil for the parent's standard error.
        public var errorOutput: Int32?

        public init(input: Int32? = nil, output: Int32? = nil, errorOutput: Int32? = nil) {
            self.input = input
            self.output = output
            self.errorOutput = errorOutput
        }
    }

    /// Path of the running program's executable: proc(5), or without /proc the path of its start.
    public static let executablePath: String = {
        let link = "/proc/self/exe"
        guard unsafe access(link, X_OK) != 0, let path = unsafe linux_program_path() else { return link }
        return unsafe ByteText.text(cString: path)
    }()

    /// Path of another program in the folder of this one.
    public static func siblingProgramPath(named name: String) -> String {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink("/proc/self/exe", &bytes, bytes.count)
        guard count > 0 else { return name }
        let path = ByteText.text(of: bytes.prefix(count).map { UInt8(bitPattern: $0) })
        return String(path[...(path.lastIndex(of: "/") ?? path.startIndex)]) + name
    }

    /// Exit of a child that was not reaped by its owner.
    private static let unknownExit = Exit.code(-1)

    /// Process ID, valid until the child is reaped.
    public let pid: Int32
    private let process: ProcessDescriptor
    private var exit: Exit?

    private init(pid: Int32, process: ProcessDescriptor) {
        self.pid = pid
        self.process = process
    }

    /// Readable after the child has ended; then call ``reap()``.
    public var descriptor: Int32 { process.descriptor }

    /// Starts the program at `path`.
    ///
    /// - Parameters:
    ///   - arguments: Argument vector, starting with the program's name.
    ///   - streams: Descriptors of the parent other than 0, 1 and 2.
    ///   - inherited: Descriptors that the child inherits under the same numbers.
    ///   - variables: Environment variables added to or overriding those of this process.
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
        if let errors = streams.errorOutput { unsafe posix_spawn_file_actions_adddup2(&actions, errors, 2) }
        // dup2 of a descriptor onto itself clears close-on-exec, in the child only.
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

        var strings: [UnsafeMutablePointer<CChar>?] =
            unsafe arguments.map { unsafe strdup(ByteText.cString($0)) } + [nil]
        // swift-format-ignore: ReplaceForEachWithForLoop
        defer { unsafe strings.forEach { unsafe free($0) } }
        var environment: [UnsafeMutablePointer<CChar>?] = unsafe environment(with: variables) + [nil]
        // swift-format-ignore: ReplaceForEachWithForLoop
        defer { unsafe environment.forEach { unsafe free($0) } }
        var pid: pid_t = 0
        let code = unsafe posix_spawn(&pid, ByteText.cString(path), &actions, &attributes, &strings, &environment)
        guard code == 0 else { throw SystemError("posix_spawn", number: code) }
        return try makeOwnedChild(pid: pid)
    }

    /// Forks this process and runs `body` in the child, which saves loading, linking and argument parsing.
    ///
    /// The child's descriptors are closed as with ``spawn(_:_:streams:inheriting:variables:)``. Its memory is a copy of
    /// this process's. Exit handlers of this process do not run in the child. A child that cannot be prepared exits
    /// with code 127.
    ///
    /// - Parameter body: Returns the exit code.
    /// - Returns: nil if this process has other threads, because the child would inherit their locks but not the
    ///   threads. Also nil if the kernel has no close_range(2).
    public static func fork(
        inheriting inherited: [Int32] = [], _ body: () -> Int32
    ) throws(SystemError) -> ChildProcess? {
        // No descriptor has this number, so nothing is closed.
        guard linux_is_single_threaded() != 0, linux_close_range(.max, .max) == 0 else { return nil }
        // Flushes buffered output, which both processes would write otherwise.
        fflush(nil)
        let pid = linux_fork()
        guard pid != 0 else {
            guard prepareForkedChild(inheriting: inherited) else { _exit(127) }
            let code = body()
            fflush(nil)
            _exit(code)
        }
        guard pid > 0 else { throw SystemError("fork") }
        // The child does the same: the group exists before either continues.
        setpgid(pid, pid)
        return try makeOwnedChild(pid: pid)
    }

    /// signal(7) on Linux. SIGKILL and SIGSTOP reject the change.
    private static let lastSignalNumber: Int32 = 64
    /// Signals for which Swift's runtime prints a backtrace. Its handlers work in a forked child as well.
    private static let crashSignals = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGTRAP]

    /// Prepares a forked child like a spawned one: process group, signals and descriptors.
    private static func prepareForkedChild(inheriting inherited: [Int32]) -> Bool {
        setpgid(0, 0)
        for number in 1...lastSignalNumber where !crashSignals.contains(number) { signal(number, SIG_DFL) }
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

    private static func makeOwnedChild(pid: Int32) throws(SystemError) -> ChildProcess {
        do throws(SystemError) {
            return ChildProcess(pid: pid, process: try ProcessDescriptor(pid: pid))
        } catch {
            kill(pid, SIGKILL)
            awaitEnd(of: pid)
            throw error
        }
    }

    /// Blocks until a child has ended, and reaps it.
    private static func awaitEnd(of pid: Int32) {
        while waitpid(pid, nil, 0) < 0, errno == EINTR {}
    }

    /// Names of this process's environment variables, which its children inherit.
    public static var inheritedVariables: [String] {
        var names: [String] = []
        var next = unsafe linux_environment()
        while let entry = unsafe next?.pointee {
            names.append(unsafe String(ByteText.text(cString: entry).prefix { $0 != "=" }))
            unsafe next = next?.advanced(by: 1)
        }
        return names
    }

    /// Returns this process's environment with `variables` applied, as C strings that the caller must free.
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

    /// Sends a signal to the child's process group, including the child's own children. No effect after the child is
    /// reaped, because its ID may then belong to another group.
    public func sendSignalToGroup(_ signal: Int32) {
        if exit == nil { kill(-pid, signal) }
    }

    /// Sends a signal. Returns false if the child has ended.
    @discardableResult
    public func sendSignal(_ signal: Int32) -> Bool { process.sendSignal(signal) }

    /// Kills the child's process group and reaps the child on a thread, because a killed process can need time to end.
    /// The child's exit is then unknown.
    public func killAndReap() {
        guard exit == nil else { return }
        kill(-pid, SIGKILL)
        exit = Self.unknownExit
        let pid = pid
        do throws(SystemError) {
            try BackgroundThread.run { Self.awaitEnd(of: pid) }
        } catch {
            Self.awaitEnd(of: pid)
        }
    }

    /// Returns the child's exit, or nil while it runs. Frees its entry in the process table.
    public func reap() -> Exit? {
        if let exit { return exit }
        var status: Int32 = 0
        while true {
            let result = unsafe waitpid(pid, &status, WNOHANG)
            if result == 0 { return nil }
            guard result < 0 else { break }
            if errno == EINTR { continue }
            // ECHILD: the child was reaped elsewhere, so its exit is unknown and its ID may be reused.
            exit = Self.unknownExit
            return exit
        }
        let ended: Exit =
            linux_wait_exited(status) != 0
            ? .code(linux_wait_exit_code(status)) : .signal(linux_wait_signal(status))
        exit = ended
        return ended
    }
}
