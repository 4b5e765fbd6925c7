internal import CLinux
internal import Glibc

/// Descriptor that any thread can make readable: eventfd(2).
public final class EventCounter: Sendable {
    /// Readable from ``signal()`` until ``take()``.
    public let descriptor: Int32

    /// - Throws: `SystemError` if no descriptor is available.
    public init() throws(SystemError) {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("eventfd") }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Makes the descriptor readable.
    public func signal() {
        var one: UInt64 = 1
        // EAGAIN: the counter is full, so the descriptor is readable already.
        while unsafe write(descriptor, &one, 8) < 0 && errno == EINTR {}
    }

    /// Makes the descriptor unreadable. Returns the number of signals since the last call.
    @discardableResult
    public func take() -> UInt64 {
        var count: UInt64 = 0
        while unsafe read(descriptor, &count, 8) < 0 && errno == EINTR {}
        return count
    }
}
