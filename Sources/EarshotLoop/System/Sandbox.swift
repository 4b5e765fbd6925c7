internal import CLinux
internal import CSandbox
internal import Glibc

/// Irrevocable restriction of a process to listed files, and to system calls that concern the process itself.
///
/// Landlock restricts files, TCP ports, abstract sockets and signals; a seccomp filter restricts system calls. Each
/// part takes effect as far as the kernel supports it. Both concern later calls only, so open descriptors stay usable.
/// The process also loses its capabilities, and can no longer change its resource limits or the signal of its parent's
/// end.
///
/// Not restricted: connecting to named Unix sockets, the addresses of TCP and UDP, and reading the metadata of files.
public struct Sandbox: Sendable {
    /// Rights to a file, or to all files below a directory.
    public enum Access: Sendable {
        case read
        /// Creating, writing, reading and removing files.
        case write
    }

    private struct Rule {
        let path: String
        let access: Access
    }

    /// Files without secrets that libraries read at any time: random numbers, and libraries that they load themselves.
    private static let defaultRules = [
        Rule(path: "/dev/urandom", access: .read), Rule(path: "/dev/null", access: .write),
        Rule(path: "/lib", access: .read), Rule(path: "/lib64", access: .read), Rule(path: "/usr/lib", access: .read),
        Rule(path: "/usr/lib64", access: .read), Rule(path: "/etc/ld.so.cache", access: .read),
    ]

    private var rules = Self.defaultRules
    /// Whether the process may listen on Unix sockets, and accept connections of sockets that listen already. No
    /// process may listen on further TCP ports.
    public var mayListen = false
    /// Whether the process may create sockets of TCP and UDP, and connect them.
    public var mayConnect = true

    public init() {}

    /// Grants access. The rule concerns the file that has this path when the sandbox takes effect, not a later one. A
    /// path without a file has no effect.
    public mutating func allow(_ access: Access, path: String) {
        rules.append(Rule(path: path, access: access))
    }

    /// Restricts this process, which must not have started other threads: they would stay unrestricted.
    public func enter() -> Report {
        guard linux_is_single_threaded() != 0 else {
            return Report(
                landlockVersion: nil, hasSystemCallFilter: false, missingPartReason: "the process has other threads")
        }
        return enterThread()
    }

    /// Restricts the calling thread, and threads that it starts later.
    func enterThread() -> Report {
        guard linux_set_no_new_privileges() == 0 else {
            return Report(
                landlockVersion: nil, hasSystemCallFilter: false, missingPartReason: "\(SystemError("no_new_privs"))")
        }
        var obstacles: [String] = []
        var landlock: Int?
        do throws(SystemError) { landlock = try restrictFiles() } catch { obstacles.append(error.description) }
        // The filter comes second, so that a failure of the first part is known. It forbids nothing that part needs.
        let uses = (mayConnect ? SANDBOX_INTERNET : 0) | (mayListen ? SANDBOX_LISTENS : 0)
        let hasFilter = sandbox_filter_calls(Int32(uses)) == 0
        if !hasFilter { obstacles.append("\(SystemError("seccomp"))") }
        return Report(
            landlockVersion: landlock, hasSystemCallFilter: hasFilter,
            missingPartReason: obstacles.isEmpty ? nil : obstacles.joined(separator: "; "))
    }

    /// - Returns: Version of Landlock.
    private func restrictFiles() throws(SystemError) -> Int {
        let version = sandbox_landlock_version()
        guard version > 0 else { throw SystemError("landlock") }
        let ports = SANDBOX_NET_BIND | (mayConnect ? 0 : SANDBOX_NET_CONNECT)
        let set = sandbox_make_rules(version, UInt64(ports))
        guard set >= 0 else { throw SystemError("landlock_create_ruleset") }
        defer { close(set) }
        for rule in rules { try addRule(rule, toRuleset: set, version: version) }
        guard sandbox_apply_rules(set) == 0 else { throw SystemError("landlock_restrict_self") }
        return Int(version)
    }

    private func addRule(_ rule: Rule, toRuleset set: Int32, version: Int32) throws(SystemError) {
        let descriptor = unsafe open(ByteText.cString(rule.path), linux_o_path | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw SystemError("fstat") }
        let isFolder = status.st_mode & S_IFMT == S_IFDIR
        guard sandbox_grant(set, descriptor, rule.access.landlockRights(isFolder: isFolder, version: version)) == 0
        else { throw SystemError("landlock_add_rule") }
    }
}

extension Sandbox.Access {
    fileprivate func landlockRights(isFolder: Bool, version: Int32) -> UInt64 {
        var rights = SANDBOX_FS_READ_FILE
        if isFolder { rights |= SANDBOX_FS_READ_DIR }
        switch self {
        case .read: break
        case .write:
            rights |= SANDBOX_FS_WRITE_FILE | SANDBOX_FS_TRUNCATE
            if isFolder { rights |= SANDBOX_FS_REMOVE_FILE | SANDBOX_FS_MAKE_REG }
        }
        return UInt64(rights) & sandbox_known_rights(version)
    }
}

extension Sandbox {
    /// The parts of a sandbox that took effect.
    public struct Report: Equatable, Sendable {
        /// Version of Landlock's interface in the kernel; nil without Landlock. Version 1 (Linux 5.13) restricts files,
        /// 4 (6.7) TCP ports, 6 (6.12) signals and abstract sockets.
        public let landlockVersion: Int?
        /// Whether the filter of system calls is installed.
        public let hasSystemCallFilter: Bool
        /// Reason why a part is missing; nil if none is.
        public let missingPartReason: String?
    }
}
