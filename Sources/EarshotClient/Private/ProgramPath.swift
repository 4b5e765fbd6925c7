internal import EarshotLoop
internal import Glibc

/// Search for programs.
package enum ProgramPath {
    /// Returns the path of an executable: `name` itself if it contains a slash, otherwise its first match in the
    /// folders of `PATH`; nil if there is none.
    package static func find(_ name: String) -> String? {
        guard !name.utf8.contains(UInt8(ascii: "/")) else {
            return unsafe access(ByteText.path(name), X_OK) == 0 ? name : nil
        }
        let folders = (Environment.value("PATH") ?? "").split(separator: ":")
        return folders.lazy.map { "\($0)/\(name)" }.first { unsafe access(ByteText.path($0), X_OK) == 0 }
    }
}
