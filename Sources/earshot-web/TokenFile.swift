internal import Glibc

/// File with the token of the clients.
enum TokenFile {
    /// Reason why a file has no usable token.
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Bytes of a token. Sixteen random characters cannot be guessed over a network.
    private static let tokenByteRange = 16...256

    /// Reads the token in the only line of a file that only its owner can access.
    static func readToken(from path: String) throws(Failure) -> [UInt8] {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw failure(path, unsafe String(cString: strerror(errno))) }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw failure(path, "not a regular file")
        }
        guard status.st_mode & 0o077 == 0 else { throw failure(path, "other users have access; run chmod 600") }
        var bytes = [UInt8](repeating: 0, count: tokenByteRange.upperBound + 2)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress, $0.count) }
        var token = Array(bytes.prefix(max(count, 0)))
        if token.last == UInt8(ascii: "\n") { token.removeLast() }
        guard !token.contains(UInt8(ascii: "\n")) else {
            throw failure(path, "more than one line; write only the token")
        }
        guard tokenByteRange.contains(token.count), token.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
            throw failure(
                path,
                "a token has \(tokenByteRange.lowerBound) to \(tokenByteRange.upperBound) visible ASCII characters")
        }
        return token
    }

    private static func failure(_ path: String, _ reason: String) -> Failure {
        Failure(description: "cannot use the token file \(path): \(reason)")
    }
}
