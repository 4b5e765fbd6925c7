internal import Glibc

/// Failed system call, with its error number: the error of most calls in this module.
public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// Name of the call, with its subject unless that is a peer's text (`open lock file`).
    public let call: String
    /// The `errno` value.
    public let number: Int32

    public init(_ call: String, number: Int32) {
        self.call = call
        self.number = number
    }

    /// Captures `errno` of the preceding call. No other call may come between.
    init(_ call: StaticString) {
        number = errno
        self.call = call.description
    }

    /// Whether the call will fail again until an administrator changes the system: a path or permission, not a
    /// shortage.
    public var isPersistent: Bool {
        switch number {
        case EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EISDIR, EEXIST, ELOOP, ENAMETOOLONG, ENODEV, ENXIO, EAFNOSUPPORT,
            EADDRNOTAVAIL:
            true
        default: false
        }
    }

    /// Whether a permission is missing.
    public var isDenied: Bool { number == EACCES }

    /// Whether a listening socket's address is in use.
    public var isAddressInUse: Bool { number == EADDRINUSE }

    public var description: String { unsafe "\(call): \(String(cString: strerror(number)))" }
}
