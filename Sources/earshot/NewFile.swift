internal import EarshotLoop
internal import Glibc

/// A file that is written beside its path and is there, under its name, once it is whole. Dropped before, it is gone.
final class NewFile {
    /// Where its bytes go.
    let output: Output
    private let path: String
    private let temporary: String
    private let descriptor: Int32
    private var isWhole = false

    /// This process, which writes no two files with one name at once.
    private static let writer = getpid()

    /// Begins one that becomes, or replaces, the file at `path`.
    init(for path: String) throws(Destination.Failure) {
        self.path = path
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { path.index(after: $0) } ?? path.startIndex
        let name = path[slash...]
        // The name of a file has 255 bytes at most.
        temporary = "\(path[..<slash]).\(name.utf8.count <= 200 ? name : "long").\(NewFile.writer).part"
        descriptor = unsafe open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o666)
        output = Output(file: descriptor)
        guard descriptor >= 0 else { throw Destination.cannot("write", path) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if descriptor >= 0, !isWhole { unsafe unlink(temporary) }
    }

    /// Gives it its name: all is written.
    func commit() throws(Destination.Failure) {
        guard unsafe rename(temporary, path) == 0 else { throw Destination.cannot("write", path) }
        isWhole = true
    }
}
