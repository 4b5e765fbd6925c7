internal import CLinux
internal import Glibc

/// Resource limits and allocator settings of this process, which broker, worker, gateway and door set at their start.
public enum ResourceLimits {
    /// Returns freed memory from the allocator to the system. Takes milliseconds after a burst.
    public static func returnFreeMemory() {
        linux_trim_memory()
    }

    /// Sets how much freed memory the allocator keeps for later allocations, in bytes. By default it returns everything
    /// above 128 KiB to the system, and page faults follow.
    public static func setRetainedFreeMemory(bytes: Int32) {
        linux_keep_free_memory(bytes)
    }

    /// Hard limit of open descriptors, to which this process and its children may raise their limits.
    public static func hardDescriptorLimit() throws(SystemError) -> Int {
        var limit = rlimit()
        guard unsafe linux_get_descriptor_limit(&limit) == 0 else { throw SystemError("getrlimit") }
        return Int(clamping: limit.rlim_max)
    }

    /// Raises the soft limit of open descriptors as far as the hard limit permits.
    ///
    /// libzmq ends the process when it runs out of them on ipc, so cap connections well below what this returns.
    ///
    /// - Parameters:
    ///   - least: Number of descriptors without which the process cannot work.
    ///   - enough: Number to which the limit is raised at most. Programs that this process starts inherit the limit.
    /// - Returns: The new limit.
    /// - Throws: `DescriptorShortage` for a limit below `least`, `SystemError` if the limit cannot be changed.
    @discardableResult
    public static func raiseDescriptorLimit(atLeast least: Int = 0, upTo enough: Int = .max) throws -> Int {
        var limit = rlimit()
        guard unsafe linux_get_descriptor_limit(&limit) == 0 else { throw SystemError("getrlimit") }
        let wanted = min(limit.rlim_max, rlim_t(enough))
        if limit.rlim_cur < wanted {
            limit.rlim_cur = wanted
            guard unsafe linux_set_descriptor_limit(&limit) == 0 else { throw SystemError("setrlimit") }
        }
        let descriptors = Int(clamping: limit.rlim_cur)
        guard descriptors >= least else { throw DescriptorShortage(descriptorLimit: descriptors, requiredLimit: least) }
        return descriptors
    }

    /// Number of descriptors that a process reserves for all but its connections and transfers.
    ///
    /// - Parameters:
    ///   - descriptors: Limit of the process.
    ///   - minimum: Number that it needs in any case.
    ///   - maximum: Number that is enough.
    public static func reservedDescriptors(ofLimit descriptors: Int, minimum: Int, maximum: Int) -> Int {
        min(maximum, max(minimum, descriptors / 2))
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

/// Limit of open descriptors that is too low for a process.
public struct DescriptorShortage: Error, CustomStringConvertible {
    let descriptorLimit: Int
    let requiredLimit: Int

    public init(descriptorLimit: Int, requiredLimit: Int) {
        self.descriptorLimit = descriptorLimit
        self.requiredLimit = requiredLimit
    }

    public var description: String {
        "the limit of open files is \(descriptorLimit), and \(requiredLimit) are needed; raise it (ulimit -n, LimitNOFILE=)"
    }
}
