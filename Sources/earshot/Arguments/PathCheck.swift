internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Check of paths from the command line, for each group of options that has one: an empty path is an error.
enum PathCheck {
    /// - Parameter paths: names of options, each with its path; nil for an option that was not given.
    /// - Throws: `ValidationError` for an empty path, such as that of an unset variable.
    static func check(_ paths: [(String, String?)]) throws {
        for (option, path) in paths where path?.isEmpty == true {
            throw ValidationError("\(option): the path is empty; give a path, or omit the option")
        }
    }
}

/// Relative paths from users and lists.
enum RelativePath {
    /// Whether a path stays below its base: not empty, not absolute, and without `..`.
    static func isInside(_ path: String) -> Bool {
        !path.isEmpty && path.utf8.first != UInt8(ascii: "/")
            && !path.utf8.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual("..".utf8) }
    }
}

/// Check of a certificate or key file named by an option.
enum TrustFile {
    /// - Parameter option: name of the option, for the error.
    /// - Throws: `ValidationError` if a message cannot hold the path, or this process cannot read the file.
    static func check(_ path: String, _ option: String) throws {
        if let fault = pathFault(path) { throw ValidationError("\(option): \(fault)") }
    }

    /// Returns the reason why a message cannot hold the path, or this process cannot read the file; nil for neither.
    static func pathFault(_ path: String) -> String? {
        guard Folder.isWritable(path) else { return "the path must be UTF-8 without control characters" }
        var status = stat()
        guard unsafe access(path, R_OK) == 0, unsafe stat(path, &status) == 0 else {
            return unsafe "cannot read \(path): \(String(cString: strerror(errno)))"
        }
        return status.st_mode & S_IFMT == S_IFDIR ? "\(path) is a directory; give a PEM file" : nil
    }
}
