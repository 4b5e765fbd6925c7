internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Bodies that earlier brokers left, and the bounds of the folder.
extension PartFolder {
    /// Number of parts in a folder, and their bytes.
    public struct Totals: Equatable, Sendable {
        /// Number of parts.
        public var partCount = 0
        /// Bytes of their bodies.
        public var bodyBytes = 0

        public init() {}
    }

    /// Age from which a file without its counterpart is a remainder, in seconds. A younger one may be half of a part
    /// that another broker is just storing.
    private static let minimumUnpairedAgeSeconds = 600

    // MARK: After a crash

    /// Moves bodies that ended brokers left in their spools into this folder.
    ///
    /// A body whose worker still has it stays, as its lock shows; so do those of other brokers that run.
    ///
    /// - Parameters:
    ///   - fromSpool: Spool that no other process uses; nil for none.
    ///   - own: Descriptions that this broker has stored.
    /// - Returns: Number of other descriptions in the own spool that remain, since a worker has their bodies.
    public func recoverBodies(fromSpool: String?, except own: Set<String> = []) -> Int {
        var heads: [String: [(id: String, head: PartHead)]] = [:]
        for id in entryNames(in: growingFolderDescriptor) where !own.contains(id) {
            guard !id.hasSuffix(".new"), let head = readHead(id, in: growingFolderDescriptor) else {
                removeUnpairedFile(id, in: growingFolderDescriptor)
                continue
            }
            // A spool that is gone has no bodies, and needs no lock file.
            guard let root = SpoolName.spoolPath(ofPart: head.bodyPath), unsafe access(root, F_OK) == 0 else {
                removeHead(id: id)
                continue
            }
            heads[root, default: []].append((id, head))
        }
        var remaining = 0
        for (root, found) in heads {
            let lock = root == fromSpool ? nil : Self.acquireLock(ofEndedSpool: root)
            guard root == fromSpool || lock != nil else { continue }
            for (id, head) in found {
                if recoverBody(head, in: root) { removeHead(id: id) } else if root == fromSpool { remaining += 1 }
            }
            withExtendedLifetime(lock) {}
        }
        return remaining
    }

    /// Takes the lock of the spool of an ended broker; nil if it runs, or if its supervisor, which looks after the
    /// bodies of a private bus, does.
    private static func acquireLock(ofEndedSpool spool: String) -> LockFile? {
        let supervisor = "\(spool[..<(spool.lastIndex(of: "/") ?? spool.startIndex)])/lock"
        guard (try? LockFile.isHeld(supervisor)) != true else { return nil }
        return (try? LockFile.acquire("\(spool)/broker.lock")) ?? nil
    }

    /// - Returns: false if a worker has the body.
    private func recoverBody(_ head: PartHead, in root: String) -> Bool {
        var head = head
        // The broker may have ended between the rename of the body and the change of its description.
        if BodyStatus(path: head.bodyPath) == nil, let name = head.bodyPath.split(separator: "/").last.map(String.init),
            let attempt = SpoolName.writer(of: name)?.attempt
        {
            head.bodyPath = "\(root)/\(SpoolName.keptPart(of: attempt))"
        }
        let file = unsafe Glibc.open(head.bodyPath, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return true }
        defer { close(file) }
        guard flock(file, LOCK_EX | LOCK_NB) == 0 else { return errno != EWOULDBLOCK }
        guard let body = BodyStatus(path: head.bodyPath), body.matches(head),
            head.bootID != bootID || body.device == head.device,
            usableBytes(of: body, head: head) != nil
        else { return true }
        _ = storePart(head)
        return true
    }

    /// Removes the spools of private buses whose processes were all killed, after their bodies are moved here.
    ///
    /// The supervisor of such a bus holds the lock beside the spool as long as it lives, and its broker ends with it.
    public func removePrivateSpools() {
        guard let slash = path.lastIndex(of: "/") else { return }
        let base = String(path[..<slash])
        let opened = unsafe Glibc.open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else { return }
        defer { close(opened) }
        for name in entryNames(in: opened) where Self.isPrivateBusName(name) {
            let lockPath = "\(base)/\(name)/lock"
            guard FileIdentity(path: lockPath) != nil, let lock = try? LockFile.acquire(lockPath) else { continue }
            _ = recoverBodies(fromSpool: "\(base)/\(name)/spool")
            PrivateFolder.remove("\(base)/\(name)/spool")
            unsafe unlink(lockPath)
            unsafe rmdir("\(base)/\(name)")
            withExtendedLifetime(lock) {}
        }
    }

    /// Whether a folder has the name of that of a private bus: a random number in base 36.
    private static func isPrivateBusName(_ name: String) -> Bool {
        let digits = name.utf8.dropFirst("private-".utf8.count)
        return name.hasPrefix("private-") && (1...13).contains(digits.count)
            && digits.allSatisfy { $0.isDigit || $0.isLowercase }
    }

    // MARK: Bounds

    /// Removes the parts that are too old, and the oldest ones beyond the maximum size: those of the principal with
    /// the most bytes. Removes remainders.
    ///
    /// - Parameters:
    ///   - maximumBytes: Maximum bytes of all parts.
    ///   - maximumAgeSeconds: Maximum age.
    /// - Returns: The number and bytes of the others.
    public func enforceBounds(maximumBytes: Int, maximumAgeSeconds: Int) -> Totals {
        var bodies: [(name: String, bytes: Int, changed: Int)] = []
        var heads: Set<String> = []
        let now = Int(time(nil))
        var totals = Totals()
        for entry in entryNames(in: folderDescriptor) {
            if let name = Self.partName(ofFile: entry, suffix: ".head") {
                heads.insert(name)
            } else if let name = Self.partName(ofFile: entry, suffix: ".body") {
                var status = stat()
                guard unsafe fstatat(folderDescriptor, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
                bodies.append((name, Int(status.st_size), status.st_mtim.tv_sec))
            } else if entry.hasSuffix(".new"), SpoolName.isContentAddressed(String(entry.prefix(64))) {
                removeUnpairedFile(entry, in: folderDescriptor)
            }
        }
        totals.partCount = bodies.count
        // Wrapping sums: a file that is not a part may claim any size.
        totals.bodyBytes = bodies.reduce(0) { $0 &+ $1.bytes }
        func remove(_ body: (name: String, bytes: Int, changed: Int)) {
            let names = readHead("\(body.name).head", in: folderDescriptor)?.keyDigests ?? [body.name]
            for name in names { unsafe unlinkat(folderDescriptor, "\(name).head", 0) }
            unsafe unlinkat(folderDescriptor, "\(body.name).body", 0)
            totals.partCount -= 1
            totals.bodyBytes &-= body.bytes
        }
        bodies.sort { $0.changed > $1.changed }
        while let oldest = bodies.last, oldest.changed < now - maximumAgeSeconds { remove(bodies.removeLast()) }
        if totals.bodyBytes > maximumBytes {
            var owners: [String: (bodies: [(name: String, bytes: Int, changed: Int)], bytes: Int)] = [:]
            for body in bodies {
                let owner = readHead("\(body.name).head", in: folderDescriptor)?.owner ?? ""
                owners[owner, default: ([], 0)].bodies.append(body)
                owners[owner, default: ([], 0)].bytes &+= body.bytes
            }
            while totals.bodyBytes > maximumBytes,
                let largest = owners.max(by: { $0.value.bytes < $1.value.bytes })?.key,
                let body = owners[largest]?.bodies.popLast()
            {
                owners[largest, default: ([], 0)].bytes &-= body.bytes
                remove(body)
            }
        }
        removeUnpairedFiles(bodies: bodies.map(\.name), heads: heads)
        return totals
    }

    /// Removes bodies without a description, and descriptions without a body.
    private func removeUnpairedFiles(bodies: [String], heads: Set<String>) {
        let names = Set(bodies)
        for name in names.subtracting(heads) { removeUnpairedFile("\(name).body", in: folderDescriptor) }
        for name in heads.subtracting(names) {
            if let head = readHead("\(name).head", in: folderDescriptor), names.contains(head.keyDigests[0]) {
                continue
            }
            removeUnpairedFile("\(name).head", in: folderDescriptor)
        }
    }

    private func removeUnpairedFile(_ name: String, in folder: Int32) {
        var status = stat()
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
            status.st_mtim.tv_sec < Int(time(nil)) - Self.minimumUnpairedAgeSeconds
        else { return }
        unsafe unlinkat(folder, name, 0)
    }

    // MARK: Without a broker

    /// Counts the parts of a folder. A missing folder has none.
    /// - Throws: `StoreError`.
    public static func totals(of path: String) throws(StoreError) -> Totals {
        guard let opened = try openFolder(path) else { return Totals() }
        defer { close(opened) }
        var totals = Totals()
        for entry in entryNames(in: opened) where partName(ofFile: entry, suffix: ".body") != nil {
            var status = stat()
            guard unsafe fstatat(opened, entry, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
            totals.partCount += 1
            totals.bodyBytes &+= Int(status.st_size)
        }
        return totals
    }

    /// Removes all parts of a folder, also while brokers use it. Bodies that grow stay with their attempts.
    ///
    /// - Returns: Number of the parts.
    /// - Throws: `StoreError`.
    public static func removeAllParts(of path: String) throws(StoreError) -> Int {
        guard let opened = try openFolder(path) else { return 0 }
        defer { close(opened) }
        var count = 0
        for entry in entryNames(in: opened) {
            let isBody = partName(ofFile: entry, suffix: ".body") != nil
            guard isBody || partName(ofFile: entry, suffix: ".head") != nil, unsafe unlinkat(opened, entry, 0) == 0
            else { continue }
            if isBody { count += 1 }
        }
        return count
    }

    private static func openFolder(_ path: String) throws(StoreError) -> Int32? {
        do throws(FolderError) {
            guard try PrivateFolder.existsStore(path) else { return nil }
        } catch {
            throw StoreError(error)
        }
        let opened = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard opened >= 0 else { throw StoreError("cannot open \(path): \(SystemError("open", number: errno))") }
        return opened
    }

    /// Returns the name of the part to which a file belongs; nil for a file of another kind.
    private static func partName(ofFile entry: String, suffix: String) -> String? {
        guard entry.hasSuffix(suffix) else { return nil }
        let name = String(entry.dropLast(suffix.utf8.count))
        return SpoolName.isContentAddressed(name) ? name : nil
    }

    /// Whether the folder has a part: reads its entries up to the first.
    public var hasParts: Bool {
        Self.firstEntry(of: folderDescriptor) { Self.partName(ofFile: $0, suffix: ".body") != nil } != nil
    }

    func entryNames(in folder: Int32) -> [String] { Self.entryNames(in: folder) }

    static func entryNames(in folder: Int32) -> [String] {
        var names: [String] = []
        _ = firstEntry(of: folder) { name in
            names.append(name)
            return false
        }
        return names
    }

    /// Reads the names in a folder up to the first that a condition accepts, and returns that one; nil without one.
    private static func firstEntry(of folder: Int32, where accepts: (String) -> Bool) -> String? {
        let copy = unsafe openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = unsafe fdopendir(copy) else { return nil }
        defer { unsafe closedir(stream) }
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix("."), accepts(name) { return name }
        }
        return nil
    }
}
