internal import CLinux
internal import Glibc

/// Facts of the kernel about memory: processes that it killed, and the room below the limits of this process.
public enum MemoryPressure {
    /// Maximum length of the files read here, such as `memory.stat` and `/proc/vmstat`, with reserve.
    private static let maximumFileBytes = 64 << 10

    /// Number of processes that the kernel has killed for lack of memory: those of this process's control group or,
    /// without one, of the machine. Nil if the kernel does not report it.
    public static func outOfMemoryKillCount() -> Int? {
        if let group = ControlGroup.ownGroup,
            let count = readValue(named: "oom_kill", inFile: group.folder + "/memory.events")
        {
            return count
        }
        return readValue(named: "oom_kill", inFile: "/proc/vmstat")
    }

    /// Bytes that this process may still use below the limits of its address space and of its control groups; nil
    /// without a limit. Pages of files that the kernel can drop count as free.
    public static func availableBytes() -> Int? {
        var room: Int?
        var limit = rlimit()
        if unsafe linux_address_space_limit(0, nil, &limit) == 0, limit.rlim_cur != rlim_t.max,
            let pages = readText(of: "/proc/self/statm").split(separator: " ").first.flatMap({ Int($0) })
        {
            room = Int(clamping: limit.rlim_cur) - pages * Int(getpagesize())
        }
        for group in ControlGroup.limitingGroups {
            guard let own = group.availableBytes() else { continue }
            room = min(room ?? own, own)
        }
        return room.map { max(0, $0) }
    }

    /// Control group of this process, or one around it: cgroups(7).
    struct ControlGroup {
        /// Limits from here on mean none: version 1 shows the largest number of pages.
        private static let unlimitedThreshold = 1 << 60

        let folder: String
        /// Names of its files: limit, use, and statistics of pages with a file.
        private let fileNames: (limit: String, use: String, pages: [String])

        /// The group of version 2; nil without one.
        static let ownGroup = version2Groups().first

        /// The groups that limited the memory of this process at the first use of this property.
        static let limitingGroups = (version2Groups() + version1Groups()).filter { $0.availableBytes() != nil }

        private static func version2Groups() -> [ControlGroup] {
            groupsUpToRoot(
                of: "0::", in: "/sys/fs/cgroup", fileNames: ("memory.max", "memory.current", filePageStatNames))
        }

        private static func version1Groups() -> [ControlGroup] {
            groupsUpToRoot(
                of: ":memory:", in: "/sys/fs/cgroup/memory",
                fileNames: ("memory.limit_in_bytes", "memory.usage_in_bytes", filePageStatNames.map { "total_" + $0 }))
        }

        private static let filePageStatNames = ["inactive_file", "active_file"]

        /// The group of a line of `/proc/self/cgroup`, and the groups around it up to the root of `mount`.
        private static func groupsUpToRoot(
            of kind: String, in mount: String, fileNames files: (limit: String, use: String, pages: [String])
        ) -> [ControlGroup] {
            let lines = MemoryPressure.readText(of: "/proc/self/cgroup").split(separator: "\n")
            guard let line = lines.first(where: { $0.contains(kind) }), let start = line.firstIndex(of: "/") else {
                return []
            }
            var names = line[start...].split(separator: "/")
            var groups: [ControlGroup] = []
            while true {
                groups.append(ControlGroup(folder: ([mount[...]] + names).joined(separator: "/"), fileNames: files))
                guard names.popLast() != nil else { return groups }
            }
        }

        /// Bytes below the limit; nil without a limit.
        func availableBytes() -> Int? {
            guard let limit = number(fileNames.limit), limit < Self.unlimitedThreshold, let use = number(fileNames.use)
            else { return nil }
            let free = fileNames.pages.reduce(0) {
                $0 + (MemoryPressure.readValue(named: $1, inFile: folder + "/memory.stat") ?? 0)
            }
            return limit - max(0, use - free)
        }

        private func number(_ file: String) -> Int? {
            MemoryPressure.readText(of: folder + "/" + file).split(separator: "\n").first.flatMap { Int($0) }
        }
    }

    /// The number after a name at the start of a line; nil if there is none.
    static func readValue(named name: String, inFile path: String) -> Int? {
        let lines = readText(of: path).split(separator: "\n")
        let words = lines.lazy.map { $0.split(separator: " ") }.first { $0.count == 2 && $0[0] == name }
        return words.flatMap { Int($0[1]) }
    }

    /// Content of a file of the kernel, whose size is unknown before; empty if it cannot be read.
    static func readText(of path: String) -> String {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return "" }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: maximumFileBytes)
        var count = 0
        while count < bytes.count {
            let part = unsafe bytes.withUnsafeMutableBytes { buffer in
                unsafe read(file, buffer.baseAddress?.advanced(by: count), buffer.count - count)
            }
            guard part > 0 else { break }
            count += part
        }
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }
}
