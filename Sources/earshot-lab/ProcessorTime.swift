internal import Glibc

/// Processor time of this thread in nanoseconds: clock_gettime(2). Excludes the time of other threads.
enum ProcessorTime {
    static func read() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}
