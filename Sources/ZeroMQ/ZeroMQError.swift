internal import CLibZMQ
internal import Glibc

/// Failed libzmq call, with its error number.
///
/// Errors of normal operation (`EAGAIN`, `EHOSTUNREACH`, `EINTR`) are never thrown: see ``Socket/receive()`` and
/// ``SendOutcome``.
public struct ZeroMQError: Error, Equatable, CustomStringConvertible {
    /// Name of the `zmq_…` function that failed.
    public let function: String
    /// Its `errno` value in libzmq's numbering. libzmq's own codes start at 156384712.
    public let number: Int32

    /// Captures the error of the preceding call. No other call may come between.
    init(_ function: StaticString) {
        number = zmq_errno()
        self.function = function.description
        loadFailure = nil
    }

    /// Message of the dynamic linker if libzmq itself is missing; nil otherwise.
    public let loadFailure: String?

    init(notLoaded message: String) {
        function = "dlopen"
        number = ENOENT
        loadFailure = message
    }

    public var description: String {
        if let loadFailure { return "cannot load libzmq (\(loadFailure)); install the package libzmq5" }
        return unsafe "\(function): \(String(cString: zmq_strerror(number)))"
    }
}
