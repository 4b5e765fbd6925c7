internal import CLinux
internal import Glibc

/// Signals as events of a descriptor: signalfd(2). They are blocked for this thread and those it starts later. Create
/// it before other threads start, or the kernel may deliver a signal to one of them.
public final class SignalSource {
    /// Readable while a signal is pending.
    public let descriptor: Int32

    /// Blocks `signals` permanently and receives them.
    ///
    /// - Parameter skipsIgnoredSignals: Whether signals that this process ignores stay ignored. The parent may have
    ///   disabled them, as nohup(1) does, and shells for background jobs of scripts. A blocked signal would arrive all
    ///   the same.
    public init(_ signals: [Int32], skipsIgnoredSignals: Bool = false) throws(SystemError) {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for signal in signals where !skipsIgnoredSignals || linux_is_ignored(signal) == 0 {
            unsafe sigaddset(&set, signal)
        }
        let code = unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
        descriptor = unsafe signalfd(-1, &set, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("signalfd") }
        guard code == 0 else { throw SystemError("pthread_sigmask", number: code) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Returns the next pending signal, or nil. A signal sent twice before it is read may be reported once.
    public func nextSignal() -> Int32? {
        var info = signalfd_siginfo()
        while true {
            let count = unsafe read(descriptor, &info, MemoryLayout<signalfd_siginfo>.size)
            if count == MemoryLayout<signalfd_siginfo>.size { return Int32(info.ssi_signo) }
            guard count < 0, errno == EINTR else { return nil }
        }
    }

    /// Makes a write fail instead of killing the process: with `EPIPE` to a closed pipe or socket, and with `EFBIG`
    /// beyond the limit of file sizes.
    public static func ignoreWriteSignals() {
        _ = signal(SIGPIPE, SIG_IGN)
        _ = signal(SIGXFSZ, SIG_IGN)
    }

    /// Makes a write of this thread beyond the limit of file sizes fail with `EFBIG`, for a library, which must not
    /// change the signals of its program. The kernel sends that signal to the thread that writes.
    public static func blockFileSizeSignal() {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        unsafe sigaddset(&set, SIGXFSZ)
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
    }
}
