internal import CLinux
internal import Glibc

/// A process that is nothing without the one that made it.
public enum ParentProcess {
    /// Has the kernel send `signal` to this process when its parent dies: PR_SET_PDEATHSIG, prctl(2).
    ///
    /// - Parameter expected: the parent's process number as the parent told it.
    /// - Returns: false when the parent is dead by now, so that no signal will come: then end.
    public static func bind(to expected: Int32, signal: Int32) throws(SystemError) -> Bool {
        guard linux_set_parent_death_signal(signal) == 0 else { throw SystemError("prctl") }
        return getppid() == expected
    }

    /// Gives up for good what an exec of a set-user-id program could gain: PR_SET_NO_NEW_PRIVS.
    public static func giveUpNewPrivileges() throws(SystemError) {
        guard linux_set_no_new_privileges() == 0 else { throw SystemError("prctl") }
    }
}
