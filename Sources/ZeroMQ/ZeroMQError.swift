internal import CLibZMQ
internal import Glibc

/// A call of libzmq that failed, and why.
///
/// What is part of normal traffic (`EAGAIN`, `EHOSTUNREACH`, `EINTR`) is never thrown: see ``Socket/receive()`` and
/// ``SendOutcome``.
public struct ZeroMQError: Error, Equatable, CustomStringConvertible {
    /// The `zmq_…` function that failed.
    public let function: String
    /// The `errno` value it left, in libzmq's numbering (its own codes start at 156384712).
    public let number: Int32

    /// Takes the error of the call just made: nothing may stand between that call and this line.
    init(_ function: StaticString) {
        number = zmq_errno()
        self.function = function.description
    }

    /// The context was terminated, so no further call on its sockets will succeed.
    public var isTermination: Bool { number == 156_384_712 + 53 }

    /// The endpoint is taken.
    public var isAddressInUse: Bool { number == EADDRINUSE }

    public var description: String { unsafe "\(function): \(String(cString: zmq_strerror(number)))" }
}
