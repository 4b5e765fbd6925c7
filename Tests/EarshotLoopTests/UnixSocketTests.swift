import EarshotLoop
import Glibc
import Testing

/// Rights of a listening socket.
struct UnixSocketTests {
    @Test func `only this user can connect to a listener, whatever the umask allows`() async {
        await #expect(processExitsWith: .success) {
            umask(0)
            let path = temporaryPath("listener")
            let listener = try UnixSocket.listen(at: path)
            var status = stat()
            guard unsafe stat(path, &status) == 0, status.st_mode & 0o7777 == 0o600 else { exit(1) }
            guard umask(0) == 0 else { exit(2) }
            _ = try UnixSocket.connect(to: path)
            UnixSocket.close(listener)
            unsafe unlink(path)
            exit(0)
        }
    }
}
