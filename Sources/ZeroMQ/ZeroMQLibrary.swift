internal import CLibZMQ

/// The shared library libzmq, loaded on first use. A program that makes neither a context nor a key never loads it.
enum ZeroMQLibrary {
    /// Message of the dynamic linker if the library cannot be used; nil once it is loaded. The initializer of a static
    /// runs once, however many threads call.
    private static let failure: String? = unsafe zmqshim_load().map { unsafe String(cString: $0) }

    /// Loads the library, unless it is loaded.
    ///
    /// - Throws: `ZeroMQError` if it is not installed, or lacks a function.
    static func load() throws(ZeroMQError) {
        if let failure { throw ZeroMQError(notLoaded: failure) }
    }
}
