internal import CLinux
internal import Glibc

/// Resource limits and allocator settings of this process.
public enum ResourceLimits {
    /// Returns freed memory from the allocator to the system. Takes milliseconds after a burst.
    public static func returnFreeMemory() {
        linux_trim_memory()
    }

    /// Sets how much freed memory the allocator keeps for later allocations, in bytes. By default it returns everything
    /// above 128 KiB to the system, and page faults follow.
    public static func keepFreeMemory(bytes: Int32) {
        linux_keep_free_memory(bytes)
    }

    /// Raises the soft limit of open descriptors to the hard limit.
    ///
    /// libzmq ends the process when it runs out of them on ipc, so cap connections well below what this returns.
    ///
    /// - Returns: The new limit.
    @discardableResult
    public static func raiseDescriptorLimit() throws(SystemError) -> Int {
        var limit = rlimit()
        guard unsafe linux_get_descriptor_limit(&limit) == 0 else { throw SystemError("getrlimit") }
        guard limit.rlim_cur < limit.rlim_max else { return Int(clamping: limit.rlim_cur) }
        limit.rlim_cur = limit.rlim_max
        guard unsafe linux_set_descriptor_limit(&limit) == 0 else { throw SystemError("setrlimit") }
        return Int(clamping: limit.rlim_cur)
    }

    /// Disables core dumps of this process and its children, because its memory contains credentials of requests.
    public static func forbidCoreDumps() throws(SystemError) {
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        guard unsafe linux_set_core_limit(&limit) == 0 else { throw SystemError("setrlimit") }
    }

    /// Limits the address space of a process of this user, for future allocations. The limit can be raised again up to
    /// the hard limit.
    public static func limitMemory(of pid: Int32, bytes: Int) throws(SystemError) {
        var limit = rlimit()
        guard unsafe linux_address_space_limit(pid, nil, &limit) == 0 else { throw SystemError("prlimit") }
        limit.rlim_cur = min(rlim_t(bytes), limit.rlim_max)
        guard unsafe linux_address_space_limit(pid, &limit, nil) == 0 else { throw SystemError("prlimit") }
    }
}
