internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Check of a certificate or key file named by an option.
enum TrustFile {
    /// - Parameter option: name of the option, for the error.
    /// - Throws: `ValidationError` if a message cannot hold the path, or this process cannot read the file.
    static func check(_ path: String, _ option: String) throws {
        if let fault = fault(path) { throw ValidationError("\(option): \(fault)") }
    }

    /// Returns the reason why a message cannot hold the path, or this process cannot read the file; nil for neither.
    static func fault(_ path: String) -> String? {
        guard Folder.isWritable(path) else { return "the path must be UTF-8 without control characters" }
        var status = stat()
        guard unsafe access(path, R_OK) == 0, unsafe stat(path, &status) == 0 else {
            return unsafe "cannot read \(path): \(String(cString: strerror(errno)))"
        }
        return status.st_mode & S_IFMT == S_IFDIR ? "\(path) is a directory; give a PEM file" : nil
    }
}
