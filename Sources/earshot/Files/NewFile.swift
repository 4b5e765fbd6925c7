internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// File that appears under its name only when it is complete. It is deleted if it is dropped earlier.
///
/// It is an unnamed file where the file system supports that, so a killed program leaves nothing behind. Otherwise it
/// has a temporary name beside its path, which remains after a kill. A file that it replaces passes on its owner, group
/// and mode.
///
/// Where no file may be created or renamed, as over a bind mount, the complete content is copied into the existing
/// file. Only that copy is not atomic.
final class NewFile {
    /// Failures after which the existing file is written.
    private static let errorsAllowingOverwrite: Set = [EBUSY, EXDEV, EACCES, EPERM]

    /// Output for the content.
    let output: Output
    private let entry: OutputEntry
    private let name: [CChar]
    /// Path for messages.
    private let path: String
    private let temporaryName: [CChar]
    private let descriptor: Int32
    /// Whether `temporaryName` names the file.
    private var hasTemporaryName: Bool
    /// Whether the file is elsewhere, so that its content must be copied.
    private let needsCopy: Bool
    /// Whether only the owner may read the file.
    private let isPrivate: Bool
    /// Whether the file has the permissions of the file that it replaces already.
    private let hasPermissions: Bool
    private var time: Int64?
    /// Version of the body; nil if the file has no record.
    private var bodyRecord: PartialBodyRecord?

    /// Random ID of this process, which writes no two files of one name concurrently. A process ID would collide with
    /// that of a process in another container with the same directory.
    private static let processToken = String(UInt64.random(in: 0 ... .max), radix: 36)
    /// Temporary name of all files in a directory. A constant name stays in the directory cache of the kernel.
    private static let defaultTemporaryName = ".earshot-\(processToken).part"

    /// Folder for system calls with a folder argument.
    private var folderDescriptor: Int32 { entry.folder.descriptor }

    /// Begins a file that will create or replace `path`. A link with this name is replaced, not followed.
    ///
    /// - Parameter isPrivate: whether only the owner may read the file.
    convenience init(for path: String, isPrivate: Bool = false) throws(OutputFailure) {
        let entry = try OutputEntry(path)
        _ = try entry.fileStatus()
        // A file name has at most 255 bytes.
        let shown = entry.name.utf8.count <= 200 ? entry.name : "long"
        let old = FilePermissions(ofFile: ByteText.cString(entry.name), in: entry.folder.descriptor)
        let permissions = isPrivate ? old?.restrictedToOwner ?? .ownerOnly : old
        // A file with a name is closed to others until it has its permissions.
        try self.init(
            entry, ".\(shown).\(NewFile.processToken).part", mode: permissions == nil ? 0o666 : 0o600,
            isPrivate: isPrivate, hasPermissions: true)
        if let permissions, !needsCopy, !permissions.apply(to: descriptor) {
            throw OutputFailure.systemFailure("write", path)
        }
    }

    /// Begins a file that will create or replace `name` in an open directory. At most one exists at a time.
    convenience init(in folder: OpenFolder, named name: String, at path: String) throws(OutputFailure) {
        try self.init(OutputEntry(name, in: folder, at: path), NewFile.defaultTemporaryName)
    }

    private init(
        _ entry: OutputEntry, _ temporary: String, mode: mode_t = 0o666, isPrivate: Bool = false,
        hasPermissions: Bool = false
    ) throws(OutputFailure) {
        self.entry = entry
        self.name = ByteText.cString(entry.name)
        self.path = entry.path
        self.temporaryName = ByteText.cString(temporary)
        self.isPrivate = isPrivate
        self.hasPermissions = hasPermissions
        let base = entry.folder.descriptor
        if let unnamed = UnnamedFile.open(in: ".", relativeTo: base) {
            (descriptor, hasTemporaryName, needsCopy) = (unnamed, false, false)
        } else {
            let beside = unsafe openat(
                base, self.temporaryName, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode)
            let number = errno
            needsCopy = beside < 0 && Self.errorsAllowingOverwrite.contains(number) && Self.isWritable(entry)
            descriptor =
                needsCopy ? UnnamedFile.openPrivate(in: Environment.value("TMPDIR") ?? P_tmpdir) ?? -1 : beside
            hasTemporaryName = beside >= 0
            if !needsCopy { errno = number }
        }
        output = Output(file: descriptor)
        guard descriptor >= 0 else { throw OutputFailure.systemFailure("write", path) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if hasTemporaryName { unsafe unlinkat(folderDescriptor, temporaryName, 0) }
    }

    /// Sets the time of the last change, in seconds since 1970.
    func setTime(_ seconds: Int64) {
        time = seconds
        FileTime.setModificationTime(ofDescriptor: descriptor, seconds: seconds)
    }

    /// Keeps the version of the body with the file.
    func setRecord(_ record: PartialBodyRecord) {
        self.bodyRecord = record
        PartialBodyRecord.setRecord(record, of: descriptor)
    }

    /// Waits until the content is on disk. With delayed allocation, a full disk is reported only here.
    func flush() throws(OutputFailure) {
        guard fsync(descriptor) == 0 else { throw OutputFailure.systemFailure("write", path) }
    }

    /// Waits until the name is on disk.
    func flushName() throws(OutputFailure) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let parent = slash.map { String(path[...$0]) } ?? "."
        let opened = unsafe open(ByteText.cString(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // A directory that its owner may write but not read cannot be flushed.
        if opened < 0, errno == EACCES { return }
        guard opened >= 0 else { throw OutputFailure.systemFailure("open", parent) }
        defer { close(opened) }
        guard fsync(opened) == 0 else { throw OutputFailure.systemFailure("write", parent) }
    }

    /// Names the complete file, unless its directory has another one of that name.
    ///
    /// - Returns: false if the name is taken.
    func commitWithoutReplacing() throws(OutputFailure) -> Bool {
        // The temporary name is removed with this object.
        let isLinked =
            hasTemporaryName
            ? unsafe linkat(folderDescriptor, temporaryName, folderDescriptor, name, 0) == 0
            : UnnamedFile.name(descriptor, name, in: folderDescriptor)
        if isLinked { return true }
        if errno == EEXIST { return false }
        // A file system without hard links. The caller has checked the name.
        try commit()
        return true
    }

    /// Names the complete file.
    ///
    /// - Returns: whether it replaced another file of its directory.
    /// - Throws: `OutputFailure` also if the other file is that of another user in a shared sticky folder.
    @discardableResult
    func commit() throws(OutputFailure) -> Bool {
        guard !needsCopy else { return try overwrite() }
        if !hasTemporaryName, UnnamedFile.name(descriptor, name, in: folderDescriptor) { return false }
        let number = errno
        // The rename of a temporary name does not report whether it replaced a file.
        let isThere = try entry.fileStatus() != nil
        // Only a rename can replace a file.
        errno = number
        guard hasTemporaryName || errno == EEXIST && UnnamedFile.name(descriptor, temporaryName, in: folderDescriptor)
        else { throw OutputFailure.systemFailure("write", path) }
        let replaces = isThere || !hasTemporaryName
        hasTemporaryName = true
        if replaces, !hasPermissions, let old = FilePermissions(ofFile: name, in: folderDescriptor),
            !old.apply(to: descriptor)
        {
            throw OutputFailure.systemFailure("write", path)
        }
        if unsafe renameat(folderDescriptor, temporaryName, folderDescriptor, name) == 0 {
            hasTemporaryName = false
            return replaces
        }
        let renameNumber = errno
        if Self.errorsAllowingOverwrite.contains(renameNumber), Self.isWritable(entry) { return try overwrite() }
        errno = renameNumber
        throw OutputFailure.systemFailure("write", path, directoryStep: "remove that directory, or give another name")
    }

    /// Copies the content into the existing file.
    private func overwrite() throws(OutputFailure) -> Bool {
        let source = unsafe open("/proc/self/fd/\(descriptor)", O_RDONLY | O_CLOEXEC)
        let target = Self.openExistingFile(entry)
        defer { for opened in [source, target] where opened >= 0 { close(opened) } }
        var status = stat()
        guard source >= 0, target >= 0, unsafe fstat(source, &status) == 0, !isPrivate || fchmod(target, 0o600) == 0
        else { throw OutputFailure.systemFailure("write", path) }
        // Truncated first: a body that is cut off here must not end in bytes of the earlier one.
        guard ftruncate(target, 0) == 0 else { throw OutputFailure.systemFailure("write", path) }
        try OutputFailure.throwIfFailed(Output(file: target).copy(from: source, length: Int(status.st_size)), path)
        PartialBodyRecord.setRecord(bodyRecord, of: target)
        if let time { FileTime.setModificationTime(ofDescriptor: target, seconds: time) }
        return true
    }

    /// Opens an existing regular file for writing; -1 if there is none that may be written. A link is not followed.
    private static func openExistingFile(_ entry: OutputEntry) -> Int32 {
        let opened = (try? entry.open(O_WRONLY | O_NONBLOCK)) ?? -1
        var status = stat()
        if opened < 0 { return opened }
        if unsafe fstat(opened, &status) == 0, status.st_mode & S_IFMT == S_IFREG { return opened }
        close(opened)
        errno = EINVAL
        return -1
    }

    private static func isWritable(_ entry: OutputEntry) -> Bool {
        let opened = openExistingFile(entry)
        if opened >= 0 { close(opened) }
        return opened >= 0
    }
}
