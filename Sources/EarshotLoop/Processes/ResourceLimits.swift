internal import CLinux
internal import Glibc

/// What the system lets this process have.
public enum ResourceLimits {
    /// Gives memory that was freed back to the system, which the allocator keeps otherwise: milliseconds after a burst.
    public static func returnFreeMemory() {
        linux_trim_memory()
    }

    /// Has the allocator keep so many bytes of freed memory for what is asked for next, where it gives back all beyond
    /// 128 KiB otherwise, to get it again page by page.
    public static func keepFreeMemory(bytes: Int32) {
        linux_keep_free_memory(bytes)
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

    /// Has no core of this process written, and of none that it starts: its memory holds what requests say in
    /// confidence.
    public static func forbidCoreDumps() throws(SystemError) {
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        guard unsafe linux_set_core_limit(&limit) == 0 else { throw SystemError("setrlimit") }
    }

    /// Bounds the address space of a process of this user, from its next allocation on. It may be raised again, as far
    /// as that process may have more.
    public static func limitMemory(of pid: Int32, bytes: Int) throws(SystemError) {
        var limit = rlimit()
        guard unsafe linux_address_space_limit(pid, nil, &limit) == 0 else { throw SystemError("prlimit") }
        limit.rlim_cur = min(rlim_t(bytes), limit.rlim_max)
        guard unsafe linux_address_space_limit(pid, &limit, nil) == 0 else { throw SystemError("prlimit") }
    }
}
