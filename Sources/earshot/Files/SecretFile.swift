internal import EarshotLoop
internal import Glibc

/// File with a secret key: mode 0600, complete or not there.
enum SecretFile {
    /// Mode of a file of another owner that only a group of this process reads, as Kubernetes mounts a secret.
    private static let groupReadableMode: mode_t = 0o440

    /// Checks that no other user has access to a file. A missing file is no error.
    ///
    /// - Parameters:
    ///   - content: the secret in the file, for the message.
    ///   - mayBeOfGroup: whether a group of this process may read a file of another owner.
    /// - Throws: `CommandError` that names the file.
    static func checkAccess(_ path: String, content: String, mayBeOfGroup: Bool = false) throws(CommandError) {
        var status = stat()
        guard unsafe stat(ByteText.cString(path), &status) == 0 else {
            guard errno == ENOENT || errno == ENOTDIR else {
                throw TOMLFile.commandError(path, unsafe String(cString: strerror(errno)))
            }
            return
        }
        guard status.st_mode & S_IFMT == S_IFREG else { throw TOMLFile.commandError(path, "it is no regular file") }
        let isOfGroup =
            mayBeOfGroup && status.st_mode & 0o7777 == groupReadableMode && ownGroupIDs.contains(status.st_gid)
            && (status.st_uid != geteuid() || geteuid() == 0)
        guard status.st_mode & 0o077 == 0 || isOfGroup else {
            throw TOMLFile.commandError(
                path, "other users have access to the file, which holds \(content); run `chmod 600` on it")
        }
    }

    /// Groups of this process.
    private static var ownGroupIDs: [gid_t] {
        let count = getgroups(0, nil)
        var groups = [gid_t](repeating: 0, count: Int(max(0, count)))
        let filled = unsafe getgroups(count, &groups)
        return [getegid()] + groups.prefix(Int(max(0, filled)))
    }

    /// Creates a file.
    ///
    /// - Parameter option: option that names the file, for the message.
    /// - Throws: `CommandError` if it exists or cannot be written.
    static func create(_ path: String, with text: String, option: String = "--out") throws(CommandError) {
        let descriptor: Int32
        do throws(OutputFailure) {
            descriptor = try OutputEntry(path).open(O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        } catch {
            throw error.commandError()
        }
        guard descriptor >= 0 else {
            throw errno == EEXIST
                ? CommandError(.cannotWrite, "\(path) exists; give another file with \(option)")
                : cannotWriteError(path)
        }
        defer { close(descriptor) }
        guard write(text, to: descriptor), fsync(descriptor) == 0 else {
            let fault = cannotWriteError(path)
            unsafe unlink(ByteText.cString(path))
            throw fault
        }
    }

    /// Creates a file, or replaces it. The owner of a replaced file stays, also if root replaces it.
    static func replace(_ path: String, with text: String) throws(CommandError) {
        do throws(OutputFailure) {
            let file = try NewFile(for: path, isPrivate: true)
            try OutputFailure.throwIfFailed(file.output.write(Array(text.utf8)), path)
            try file.flush()
            try file.commit()
        } catch {
            throw error.commandError()
        }
    }

    private static func write(_ text: String, to descriptor: Int32) -> Bool {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            bytes.removeFirst(count)
        }
        return true
    }

    private static func cannotWriteError(_ path: String) -> CommandError {
        CommandError(.cannotWrite, "cannot write \(path): \(unsafe String(cString: strerror(errno)))")
    }
}
