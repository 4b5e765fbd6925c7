internal import CLinux
internal import Glibc

/// Pipes between a process and its children: secrets, messages of readiness, and the output of programs.
public enum InheritedPipe {
    /// Maximum number of bytes; fits into any pipe's buffer.
    private static let maximumTextBytes = 4096

    /// Creates a pipe with both ends close-on-exec; see
    /// ``ChildProcess/spawn(_:_:streams:inheriting:variables:)``.
    public static func make() throws(SystemError) -> (reader: Int32, writer: Int32) {
        var ends: [Int32] = [-1, -1]
        guard unsafe linux_pipe(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
        return (ends[0], ends[1])
    }

    /// Returns the read end of a pipe that contains `text`, at most 4 KiB, and is closed for writing.
    public static func makeReader(containing text: String) throws(SystemError) -> Int32 {
        precondition(
            text.utf8.count <= maximumTextBytes, "\(text.utf8.count) bytes are too many for a pipe nobody reads yet")
        let (reader, writer) = try make()
        defer { close(writer) }
        let bytes = Array(text.utf8)
        guard unsafe bytes.withUnsafeBytes({ unsafe write(writer, $0.baseAddress, $0.count) }) == bytes.count else {
            let error = SystemError("write")
            close(reader)
            throw error
        }
        return reader
    }

    /// Returns an unnamed file with these contents at offset 0, for contents too long for a pipe.
    public static func makeUnnamedFile(containing bytes: [UInt8]) throws(SystemError) -> Int32 {
        let descriptor = unsafe linux_memory_file("earshot")
        guard descriptor >= 0 else { throw SystemError("memfd_create") }
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes {
                unsafe pwrite(descriptor, $0.baseAddress?.advanced(by: written), bytes.count - written, written)
            }
            guard count > 0 else {
                let error = SystemError("write")
                if error.number == EINTR { continue }
                close(descriptor)
                throw error
            }
            written += count
        }
        return descriptor
    }

    /// Reads a descriptor up to its end, at most 4 KiB, and closes it.
    public static func readAll(_ descriptor: Int32) throws(SystemError) -> String {
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: maximumTextBytes)
        while bytes.count < maximumTextBytes {
            let count = unsafe read(descriptor, &buffer, maximumTextBytes - bytes.count)
            if count == 0 { break }
            guard count > 0 else {
                let error = SystemError("read")
                if error.number == EINTR { continue }
                throw error
            }
            bytes += buffer[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Blocks until the descriptor is readable, and closes it.
    ///
    /// - Returns: whether it held a byte, not only the end of the pipe.
    public static func awaitByte(_ descriptor: Int32) -> Bool {
        defer { close(descriptor) }
        var byte: UInt8 = 0
        while true {
            let count = unsafe read(descriptor, &byte, 1)
            if count >= 0 || errno != EINTR { return count == 1 }
        }
    }

    /// Writes `ready` to the descriptor and closes it.
    public static func reportReady(_ descriptor: Int32) {
        let line = Array("ready\n".utf8)
        _ = unsafe line.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
        close(descriptor)
    }
}
