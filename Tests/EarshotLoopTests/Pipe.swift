import Glibc

/// Pipe with both ends, for tests.
final class Pipe {
    let reader: Int32
    let writer: Int32

    init() {
        var ends: [Int32] = [-1, -1]
        let code = unsafe pipe(&ends)
        precondition(code == 0, "pipe failed with \(errno)")
        reader = ends[0]
        writer = ends[1]
    }

    deinit {
        close(reader)
        close(writer)
    }

    func put() {
        var byte: UInt8 = 1
        unsafe write(writer, &byte, 1)
    }

    func take() {
        var byte: UInt8 = 0
        unsafe read(reader, &byte, 1)
    }

    /// Waits for input, and returns the result of one read.
    func text() -> String {
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let count = unsafe read(reader, &bytes, bytes.count)
        return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self)
    }
}

/// Returns a unique path in the system's folder for temporary files.
func temporaryPath(_ name: String) -> String {
    let folder = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
    return "\(folder)/earshot-test-\(getpid())-\(UInt64.random(in: 0 ... .max))-\(name)"
}
