internal import CLinux
internal import Glibc

/// What this process is called in lists of processes.
public enum ProcessName {
    /// Names the calling thread, and those it starts later; the main thread's name is the process's: PR_SET_NAME,
    /// prctl(2).
    ///
    /// - Parameter name: what is beyond 15 bytes is cut off.
    public static func set(_ name: StaticString) {
        // Fails for no name at a good address.
        _ = unsafe linux_set_name(name.utf8Start)
    }
}
