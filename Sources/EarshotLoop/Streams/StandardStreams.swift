internal import CLinux
internal import Glibc

/// Descriptors 0, 1 and 2, which `earshot` and `earshot-web` occupy before they open anything.
public enum StandardStreams {
    /// Opens a placeholder on each of the three descriptors that is closed, so that no socket or file gets its number.
    ///
    /// A program calls it before it opens anything. Reading or writing a placeholder fails with `EBADF`, as if it were
    /// still closed, so lost output is reported as an error.
    public static func occupy() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            // open(2) returns the lowest free number, which is this one.
            _ = unsafe open("/", linux_o_path)
        }
    }
}
