internal import Glibc

/// Memory usage of this process: proc_pid_status(5).
enum ResidentMemory {
    static var bytes: Int { status("VmRSS:") }

    /// Peak since the last `forgetPeak`.
    static var peakBytes: Int { status("VmHWM:") }

    /// Resets the peak: proc_pid_clear_refs(5), 5.
    static func forgetPeak() {
        guard let file = unsafe fopen("/proc/self/clear_refs", "w") else { return }
        unsafe fputs("5", file)
        unsafe fclose(file)
    }

    private static func status(_ name: String) -> Int {
        guard let file = unsafe fopen("/proc/self/status", "r") else { return 0 }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        while unsafe fgets(&line, Int32(line.count), file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
                .split { $0.isWhitespace }
            if words.first == name[...], words.count > 1 { return (Int(words[1]) ?? 0) * 1_024 }
        }
        return 0
    }
}
