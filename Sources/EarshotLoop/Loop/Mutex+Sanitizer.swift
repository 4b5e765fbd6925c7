internal import CLinux
public import Synchronization

extension Mutex where Value: ~Copyable {
    /// As `withLock`, and seen by the thread sanitizer: who waits for a mutex waits in the standard library, which is
    /// built without it, so that it takes what two threads do one after the other for a race.
    ///
    /// - Parameter owner: the object that has the mutex, one for each.
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
