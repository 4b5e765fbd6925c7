internal import Glibc

/// What this thread has used of a processor, in nanoseconds: clock_gettime(2). Time that others had it does not count.
enum ProcessorTime {
    static func read() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}
