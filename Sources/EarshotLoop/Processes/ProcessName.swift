internal import CLinux
internal import Glibc

/// Name of this process in process listings, which broker, worker, gateway and door set at their start.
public enum ProcessName {
    /// Names the calling thread and threads it starts later: PR_SET_NAME, prctl(2). The main thread's name is the
    /// process's.
    ///
    /// - Parameter name: Truncated to 15 bytes.
    public static func set(_ name: StaticString) {
        // Cannot fail for a valid address.
        _ = unsafe linux_set_name(name.utf8Start)
    }
}
