internal import Glibc

/// Thread that runs one function. It communicates with a loop only through a `Mailbox`.
public enum BackgroundThread {
    /// Box that carries the function to the thread.
    private final class Work: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Runs `body` on a new thread with the caller's signal mask.
    ///
    /// - Throws: `SystemError` if the thread cannot be created; then `body` does not run.
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
