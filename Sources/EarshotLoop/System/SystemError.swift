internal import Glibc

/// A system call that failed, and why.
public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// The call, and what it was about where that is not a peer's text (`open lock file`).
    public let call: String
    /// The `errno` value.
    public let number: Int32

    public init(_ call: String, number: Int32) {
        self.call = call
        self.number = number
    }

    /// Takes the error of the call just made: nothing may stand between that call and this line.
    init(_ call: StaticString) {
        number = errno
        self.call = call.description
    }

    /// Whether the same call fails again until somebody changes the system: a path or a permission, not a shortage.
    public var isLasting: Bool {
        switch number {
        case EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EISDIR, EEXIST, ELOOP, ENAMETOOLONG, ENODEV, ENXIO, EAFNOSUPPORT,
            EADDRNOTAVAIL:
            true
        default: false
        }
    }

    public var description: String { unsafe "\(call): \(String(cString: strerror(number)))" }
}
