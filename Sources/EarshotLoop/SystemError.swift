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

    public var description: String { unsafe "\(call): \(String(cString: strerror(number)))" }
}
