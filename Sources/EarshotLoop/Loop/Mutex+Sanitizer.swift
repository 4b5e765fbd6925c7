internal import CLinux
public import Synchronization

/// Lock of a mutex whose order the thread sanitizer of `bin/test races` can see.
extension Mutex where Value: ~Copyable {
    /// Equivalent of `withLock` whose ordering is visible to the thread sanitizer. The standard library implements the
    /// mutex and is not instrumented, so the sanitizer would report false races.
    ///
    /// - Parameter owner: Object that contains the mutex; one mutex per owner.
    public borrowing func withLock<Answer: ~Copyable>(
        of owner: AnyObject, _ body: (inout sending Value) -> sending Answer
    ) -> sending Answer {
        withLock { value in
            let address = unsafe UnsafeRawPointer(Unmanaged.passUnretained(owner).toOpaque())
            unsafe linux_sanitizer_acquired(address)
            defer { unsafe linux_sanitizer_releases(address) }
            return body(&value)
        }
    }
}
