internal import CLinux
internal import Glibc

/// Signals as events: they are blocked for this thread, and for those it starts later, and are read from a
/// descriptor: signalfd(2). Make it before other threads start, or one of them takes the signal the old way.
public final class SignalSource {
    /// Readable when a signal waits.
    public let descriptor: Int32

    /// Takes over `signals`, for good.
    public init(_ signals: [Int32]) throws(SystemError) {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for signal in signals { unsafe sigaddset(&set, signal) }
        let code = unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
        descriptor = unsafe signalfd(-1, &set, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("signalfd") }
        guard code == 0 else { throw SystemError("pthread_sigmask", number: code) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// The next signal that waits, or nil. The same signal sent twice before it was read may come once.
    public func next() -> Int32? {
        var info = signalfd_siginfo()
        while true {
            let count = unsafe read(descriptor, &info, MemoryLayout<signalfd_siginfo>.size)
            if count == MemoryLayout<signalfd_siginfo>.size { return Int32(info.ssi_signo) }
            guard count < 0, errno == EINTR else { return nil }
        }
    }

    /// Makes a write into a closed pipe or socket an error (`EPIPE`) and no longer a death.
    public static func ignoreBrokenPipes() {
        _ = signal(SIGPIPE, SIG_IGN)
    }
}
