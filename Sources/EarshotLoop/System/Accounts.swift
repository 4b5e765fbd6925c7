internal import Glibc

/// Users and groups of the machine, from passwd(5), group(5) and the other sources of nsswitch.conf(5).
///
/// A look-up blocks until its source answers.
public enum Accounts {
    /// Buffer sizes in bytes. An entry that does not fit into the largest one counts as missing.
    private static let bufferSizes = [1_024, 16_384, 1 << 20]
    /// Maximum number of groups of a user: the kernel's NGROUPS_MAX.
    private static let maximumGroupsPerUser: Int32 = 65_536

    /// Returns the ID of the named user; nil if there is none.
    public static func user(named name: String) -> UInt32? {
        for size in bufferSizes {
            var buffer = [CChar](repeating: 0, count: size)
            var entry = unsafe passwd()
            var found: UnsafeMutablePointer<passwd>?
            let status = unsafe getpwnam_r(name, &entry, &buffer, size, &found)
            if status != ERANGE { return unsafe status == 0 && found != nil ? entry.pw_uid : nil }
        }
        return nil
    }

    /// Returns the ID of the named group; nil if there is none.
    public static func group(named name: String) -> UInt32? {
        for size in bufferSizes {
            var buffer = [CChar](repeating: 0, count: size)
            var entry = unsafe Glibc.group()
            var found: UnsafeMutablePointer<Glibc.group>?
            let status = unsafe getgrnam_r(name, &entry, &buffer, size, &found)
            if status != ERANGE { return unsafe status == 0 && found != nil ? entry.gr_gid : nil }
        }
        return nil
    }

    /// Returns the primary and the supplementary groups of a user; empty for an unknown user.
    public static func groups(of user: UInt32) -> Set<UInt32> {
        for size in bufferSizes {
            var buffer = [CChar](repeating: 0, count: size)
            var entry = unsafe passwd()
            var found: UnsafeMutablePointer<passwd>?
            let status = unsafe getpwuid_r(user, &entry, &buffer, size, &found)
            if status == ERANGE { continue }
            guard unsafe status == 0 && found != nil, let name = unsafe entry.pw_name else { return [] }
            // Copied before the end of the buffer's life.
            return groups(ofName: unsafe String(cString: name), primary: unsafe entry.pw_gid)
        }
        return []
    }

    private static func groups(ofName name: String, primary: UInt32) -> Set<UInt32> {
        var capacity: Int32 = 64
        while capacity <= maximumGroupsPerUser {
            var groups = [gid_t](repeating: 0, count: Int(capacity))
            var count = capacity
            if unsafe getgrouplist(name, primary, &groups, &count) >= 0 { return Set(groups.prefix(Int(count))) }
            capacity = max(count, capacity * 2)
        }
        return [primary]
    }
}
