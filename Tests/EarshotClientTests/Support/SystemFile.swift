import EarshotLoop
import Glibc

/// File access outside the library.
enum SystemFile {
    /// Returns the content of a file of at most 1 MiB.
    static func bytes(_ path: String) throws -> [UInt8] {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open", number: errno) }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        let count = unsafe read(descriptor, &bytes, bytes.count)
        return Array(bytes[..<count])
    }

    /// Creates a file.
    static func write(_ bytes: [UInt8], to path: String, mode: mode_t) {
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
        // The umask does not apply to fchmod.
        guard fchmod(descriptor, mode) == 0, unsafe Glibc.write(descriptor, bytes, bytes.count) == bytes.count else {
            preconditionFailure("cannot write \(path)")
        }
        close(descriptor)
    }

    /// Returns whether this process has a file open that has, or had, this path.
    static func isOpen(_ path: String) -> Bool {
        (0..<1024).contains { descriptor in
            target("/proc/self/fd/\(descriptor)").hasPrefix(path)
        }
    }

    /// Returns the target of a link; empty if it is none.
    static func target(_ link: String) -> String {
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink(link, &target, target.count)
        return String(decoding: target[..<max(count, 0)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
