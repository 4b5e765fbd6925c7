internal import CLinux
internal import Glibc

/// Descriptors 0, 1 and 2.
public enum StandardStreams {
    /// Occupies each of the three descriptors that is closed, so that no socket or file gets its number.
    ///
    /// A program calls it before it opens anything. Reading or writing such a descriptor fails with `EBADF`, as if it
    /// were still closed: output sent there is an error, not lost.
    public static func occupy() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            // The lowest free number is this one.
            _ = unsafe open("/", linux_o_path)
        }
    }
}
