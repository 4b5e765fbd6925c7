internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// What earlier brokers left, and the bounds of the folder.
extension PartFolder {
    /// Number of parts in a folder, and their bytes.
    public struct Totals: Equatable, Sendable {
        public var parts = 0
        public var bytes = 0
        /// Value of `changes` before they were counted; nil if unknown.
        public var changes: Int?

        public init() {}
    }

    /// Age from which a file without its counterpart is a remainder, in seconds. A younger one may be half of a part that
    /// another broker is just storing.
    private static let remainderSeconds = 600

    // MARK: After a crash

    /// Moves bodies that ended brokers left in their spools into this folder.
    ///
    /// A body whose worker still has it stays, as its lock shows; so do those of other brokers that run.
    ///
    /// - Parameters:
    ///   - spool: Spool of this broker, which holds its lock; nil for none.
    ///   - own: Descriptions that this broker has stored.
    /// - Returns: Number of other descriptions in the own spool that remain, since a worker has their bodies.
    public func recover(spool: String?, except own: Set<String> = []) -> Int {
        var remaining = 0
        // Locks of the spools of ended brokers, and the spools of brokers that run.
        var locks: [String: LockFile] = [:]
        var taken: Set<String> = []
        for id in names(in: growing) where !own.contains(id) {
            guard let head = readHead(id, in: growing) else {
                removeRemainder(id, in: growing)
                continue
            }
            // A spool that is gone has no bodies, and needs no lock file.
            guard let root = SpoolName.spool(ofPart: head.path), unsafe access(root, F_OK) == 0 else {
                forget(id)
                continue
            }
            if root != spool, locks[root] == nil {
                guard !taken.contains(root), let lock = try? LockFile.take("\(root)/broker.lock") else {
                    taken.insert(root)
                    continue
                }
                locks[root] = lock
            }
            if recover(head) { forget(id) } else { remaining += root == spool ? 1 : 0 }
        }
        return remaining
    }

    /// - Returns: false if a worker has the body.
    private func recover(_ head: PartHead) -> Bool {
        let file = unsafe Glibc.open(head.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return true }
        defer { close(file) }
        guard flock(file, LOCK_EX | LOCK_NB) == 0 else { return errno != EWOULDBLOCK }
        guard let body = Body(path: head.path), body.matches(head), head.boot != boot || body.device == head.device,
            count(body, head) != nil
        else { return true }
        _ = store(head)
        return true
    }

    /// Removes the spools of private buses whose processes were all killed, after their bodies are moved here.
    public func removePrivateSpools() {
        guard let slash = path.lastIndex(of: "/") else { return }
        let base = String(path[..<slash])
        let opened = unsafe Glibc.open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else { return }
        defer { close(opened) }
        for name in names(in: opened) where name.hasPrefix("private-") {
            var status = stat()
            // A bus that starts has its folder before its lock.
            guard unsafe fstatat(opened, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFDIR,
                status.st_uid == geteuid(), status.st_mtim.tv_sec < Int(time(nil)) - Self.remainderSeconds,
                (try? LockFile.isHeld("\(base)/\(name)/spool/broker.lock")) == false
            else { continue }
            _ = recover(spool: nil)
            PrivateFolder.remove("\(base)/\(name)")
        }
    }

    // MARK: Bounds

    /// Removes the parts that are too old, and the oldest ones beyond the maximum size: those of the principal that has
    /// most bytes. Removes remainders.
    ///
    /// - Parameters:
    ///   - limit: Maximum bytes of all parts.
    ///   - seconds: Maximum age.
    /// - Returns: What is left.
    public func sweep(limit: Int, seconds: Int) -> Totals {
        var bodies: [(name: String, bytes: Int, changed: Int)] = []
        var heads: Set<String> = []
        let now = Int(time(nil))
        var totals = Totals()
        totals.changes = changes
        for entry in names(in: folder) {
            if entry.hasSuffix(".head") {
                heads.insert(String(entry.dropLast(5)))
            } else if entry.hasSuffix(".body") {
                var status = stat()
                guard unsafe fstatat(folder, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
                bodies.append((String(entry.dropLast(5)), Int(status.st_size), status.st_mtim.tv_sec))
            } else if entry.hasSuffix(".new") {
                removeRemainder(entry, in: folder)
            }
        }
        totals.parts = bodies.count
        totals.bytes = bodies.reduce(0) { $0 + $1.bytes }
        func remove(_ body: (name: String, bytes: Int, changed: Int)) {
            unsafe unlinkat(folder, "\(body.name).head", 0)
            unsafe unlinkat(folder, "\(body.name).body", 0)
            totals.parts -= 1
            totals.bytes -= body.bytes
        }
        bodies.sort { $0.changed > $1.changed }
        while let oldest = bodies.last, oldest.changed < now - seconds { remove(bodies.removeLast()) }
        if totals.bytes > limit {
            var owners: [String: (bodies: [(name: String, bytes: Int, changed: Int)], bytes: Int)] = [:]
            for body in bodies {
                let owner = readHead("\(body.name).head", in: folder)?.owner ?? ""
                owners[owner, default: ([], 0)].bodies.append(body)
                owners[owner]?.bytes += body.bytes
            }
            while totals.bytes > limit, let largest = owners.max(by: { $0.value.bytes < $1.value.bytes })?.key,
                let body = owners[largest]?.bodies.popLast()
            {
                owners[largest]?.bytes -= body.bytes
                remove(body)
            }
        }
        removeRemainders(of: bodies.map(\.name), heads)
        return totals
    }

    /// Removes bodies without a description, and descriptions without a body.
    private func removeRemainders(of bodies: [String], _ heads: Set<String>) {
        let names = Set(bodies)
        for name in names.subtracting(heads) { removeRemainder("\(name).body", in: folder) }
        for name in heads.subtracting(names) {
            if let head = readHead("\(name).head", in: folder), names.contains(head.names[0]) { continue }
            removeRemainder("\(name).head", in: folder)
        }
    }

    private func removeRemainder(_ name: String, in folder: Int32) {
        var status = stat()
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
            status.st_mtim.tv_sec < Int(time(nil)) - Self.remainderSeconds
        else { return }
        unsafe unlinkat(folder, name, 0)
    }

    // MARK: Without a broker

    /// Counts the parts of a folder. A missing folder has none.
    /// - Throws: `StoreError`.
    public static func totals(of path: String) throws(StoreError) -> Totals {
        guard let opened = try open(path) else { return Totals() }
        defer { close(opened) }
        var totals = Totals()
        for name in names(in: opened) where name.hasSuffix(".body") {
            var status = stat()
            guard unsafe fstatat(opened, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
            totals.parts += 1
            totals.bytes += Int(status.st_size)
        }
        return totals
    }

    /// Removes all parts of a folder, also while brokers use it. Bodies that grow stay with their attempts.
    ///
    /// - Returns: Number of the parts.
    /// - Throws: `StoreError`.
    public static func clear(_ path: String) throws(StoreError) -> Int {
        guard let opened = try open(path) else { return 0 }
        defer { close(opened) }
        var count = 0
        for name in names(in: opened) where name.hasSuffix(".body") || name.hasSuffix(".head") {
            if unsafe unlinkat(opened, name, 0) == 0, name.hasSuffix(".body") { count += 1 }
        }
        return count
    }

    private static func open(_ path: String) throws(StoreError) -> Int32? {
        do throws(FolderError) {
            guard try PrivateFolder.isStore(path) else { return nil }
        } catch {
            throw StoreError(error)
        }
        let opened = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard opened >= 0 else { throw StoreError("cannot open \(path): \(SystemError("open", number: errno))") }
        return opened
    }

    private func names(in folder: Int32) -> [String] { Self.names(in: folder) }

    private static func names(in folder: Int32) -> [String] {
        let copy = unsafe openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = unsafe fdopendir(copy) else { return [] }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix(".") { names.append(name) }
        }
        return names
    }
}
