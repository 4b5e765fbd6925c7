internal import Glibc

/// A thread that does one thing and ends. It reaches a loop by a `Mailbox` alone.
public enum BackgroundThread {
    /// What is to be done, on its way to the thread.
    private final class Work: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Runs `body` on a new thread, which blocks the signals that the calling one blocks.
    ///
    /// - Throws: `SystemError` when there is no thread to be had; then `body` does not run.
    public static func run(_ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var thread = pthread_t()
        let work = unsafe Unmanaged.passRetained(Work(body))
        let code = unsafe pthread_create(
            &thread, nil,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<Work>.fromOpaque(context).takeRetainedValue().body()
                return nil
            }, work.toOpaque())
        guard code == 0 else {
            unsafe work.release()
            throw SystemError("pthread_create", number: code)
        }
        pthread_detach(thread)
    }
}
