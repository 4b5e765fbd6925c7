internal import EarshotLoop
internal import Glibc

/// Operations on the paths of folders, for `RuntimeFolder` and for paths on the command line.
package enum Folder {
    /// Returns the absolute form of `path`, without trailing slashes.
    package static func absolute(_ path: String) -> String {
        var path = Substring(path)
        while path.count > 1, path.last == "/" { path.removeLast() }
        guard path.first != "/" else { return String(path) }
        while path.hasPrefix("./") { path.removeFirst(2) }
        guard let current = unsafe getcwd(nil, 0) else { return String(path) }
        defer { unsafe free(current) }
        let folder = unsafe ByteText.text(cString: current)
        return path.isEmpty || path == "." ? folder : "\(folder == "/" ? "" : folder)/\(path)"
    }

    /// Returns whether a path can stand in the head of a message: UTF-8 without control characters.
    package static func isWritable(_ path: String) -> Bool {
        !ByteText.isMarked(path) && path.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }

    /// Returns the absolute path of a folder that messages name.
    ///
    /// - Parameter kind: purpose of the folder, for the error.
    /// - Throws: `ClientError` if the path is empty, or a message cannot contain it.
    package static func checkedPath(_ path: String, _ kind: String) throws(ClientError) -> String {
        guard !path.isEmpty else {
            throw ClientError(.folder, "the path of the \(kind) folder is empty: give the path of a folder")
        }
        let path = absolute(path)
        guard isWritable(path) else {
            throw ClientError(
                .folder, "the \(kind) folder \(path) holds a control character or is not UTF-8: choose another path")
        }
        return path
    }

    /// Returns the path of `name` in the folder that contains the absolute `path`.
    package static func beside(_ path: String, _ name: String) -> String {
        "\(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])/\(name)"
    }

    /// Creates a folder and its missing parents with `mode` and the umask.
    ///
    /// - Throws: `ClientError` if one cannot be created.
    package static func make(_ path: String, mode: UInt32) throws(ClientError) {
        guard unsafe mkdir(ByteText.path(path), mode) != 0, errno != EEXIST else { return }
        var number = errno
        if number == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex {
            try make(String(path[..<slash]), mode: mode)
            if unsafe mkdir(ByteText.path(path), mode) == 0 || errno == EEXIST { return }
            number = errno
        }
        throw ClientError(.folder, unsafe "cannot create the folder \(path): \(String(cString: strerror(number)))")
    }
}
