import Glibc

/// System calls by number, for calls without a function in Swift's Glibc module.
enum SystemCall {
    #if arch(x86_64)
        static let clone = 56
        static let execve = 59
        static let ptrace = 101
        static let setuid = 105
        static let unshare = 272
        static let bpf = 321
    #elseif arch(arm64)
        static let clone = 220
        static let execve = 221
        static let ptrace = 117
        static let unshare = 97
        static let setuid = 146
        static let bpf = 280
    #endif
    static let clone3 = 435

    /// Returns the result of a call; -1 with its error in `errno`.
    static func run(_ number: Int, _ first: Int = 0, _ second: Int = 0) -> Int {
        // syscall(2) takes a variable number of integers, which both architectures pass like fixed ones.
        typealias Function = @convention(c) (Int, Int, Int, Int, Int) -> Int
        guard let symbol = unsafe dlsym(nil, "syscall") else { return -1 }
        return unsafe unsafeBitCast(symbol, to: Function.self)(number, first, second, 0, 0)
    }
}
