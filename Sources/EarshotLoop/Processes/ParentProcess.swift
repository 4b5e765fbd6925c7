internal import CLinux
internal import Glibc

/// Restrictions of a process that must not outlive its parent.
public enum ParentProcess {
    /// Makes the kernel send `signal` to this process when its parent dies: PR_SET_PDEATHSIG, prctl(2).
    ///
    /// - Parameter expected: Process ID of the parent, as passed by the parent.
    /// - Returns: false if the parent is already dead. No signal will follow, so the caller should exit.
    public static func bind(to expected: Int32, signal: Int32) throws(SystemError) -> Bool {
        guard linux_set_parent_death_signal(signal) == 0 else { throw SystemError("prctl") }
        return getppid() == expected
    }

    /// Prevents this process from gaining privileges by an exec of a set-user-ID program: PR_SET_NO_NEW_PRIVS.
    public static func forbidNewPrivileges() throws(SystemError) {
        guard linux_set_no_new_privileges() == 0 else { throw SystemError("prctl") }
    }
}
