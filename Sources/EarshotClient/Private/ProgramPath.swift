internal import EarshotLoop
internal import Glibc

/// Where programs are.
package enum ProgramPath {
    /// The file of this name if it has a slash in it, else the first one in the folders of `PATH`; nil for what cannot
    /// be executed.
    package static func find(_ name: String) -> String? {
        guard !name.utf8.contains(UInt8(ascii: "/")) else {
            return unsafe access(ByteText.path(name), X_OK) == 0 ? name : nil
        }
        let folders = (Environment.value("PATH") ?? "").split(separator: ":")
        return folders.lazy.map { "\($0)/\(name)" }.first { unsafe access(ByteText.path($0), X_OK) == 0 }
    }
}
