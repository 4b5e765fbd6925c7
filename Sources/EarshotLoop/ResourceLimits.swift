internal import CLinux
internal import Glibc

/// What the system lets this process have.
public enum ResourceLimits {
    /// Gives memory that was freed back to the system, which the allocator keeps otherwise: milliseconds after a burst.
    public static func returnFreeMemory() {
        linux_trim_memory()
    }

    /// Raises the number of descriptors this process may open as far as it may itself.
    ///
    /// libzmq ends the process when it runs out of them on ipc, so cap connections well below what this returns.
    ///
    /// - Returns: the limit from now on.
    @discardableResult
    public static func raiseDescriptorLimit() throws(SystemError) -> Int {
        var limit = rlimit()
        guard unsafe linux_get_descriptor_limit(&limit) == 0 else { throw SystemError("getrlimit") }
        guard limit.rlim_cur < limit.rlim_max else { return Int(clamping: limit.rlim_cur) }
        limit.rlim_cur = limit.rlim_max
        guard unsafe linux_set_descriptor_limit(&limit) == 0 else { throw SystemError("setrlimit") }
        return Int(clamping: limit.rlim_cur)
    }
}
