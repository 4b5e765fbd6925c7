internal import Glibc

/// Where programs are.
enum ProgramPath {
    /// The first file of this name in the folders of `PATH` that can be executed.
    static func find(_ name: String) -> String? {
        let folders = (Environment.value("PATH") ?? "").split(separator: ":")
        return folders.lazy.map { "\($0)/\(name)" }.first { unsafe access($0, X_OK) == 0 }
    }
}
