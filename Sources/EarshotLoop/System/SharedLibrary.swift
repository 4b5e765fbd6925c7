internal import Glibc

/// Shared library of the system, to find out which version is installed.
@safe public struct SharedLibrary {
    /// Never closed, because other parts of the process may use the library.
    private let handle: UnsafeMutableRawPointer

    /// Loads the library `name`, such as `libz.so.1`; nil if the system has none.
    public init?(_ name: String) {
        guard let handle = unsafe dlopen(name, RTLD_LAZY | RTLD_LOCAL) else { return nil }
        unsafe self.handle = unsafe handle
    }

    /// Calls a function that returns a static text, and has no parameter or one that may be 0 or NULL.
    public func textResult(ofFunction function: String) -> String? {
        // By the calling conventions of Linux, a function without parameters ignores the argument.
        typealias Function = @convention(c) (Int) -> UnsafePointer<CChar>?
        guard let symbol = unsafe dlsym(handle, function) else { return nil }
        return unsafe unsafeBitCast(symbol, to: Function.self)(0).map { unsafe String(cString: $0) }
    }

    /// Calls a function that writes the three numbers of a version to its parameters.
    public func versionResult(ofFunction function: String) -> String? {
        typealias Function =
            @convention(c) (
                UnsafeMutablePointer<Int32>, UnsafeMutablePointer<Int32>, UnsafeMutablePointer<Int32>
            ) -> Void
        guard let symbol = unsafe dlsym(handle, function) else { return nil }
        var numbers: (Int32, Int32, Int32) = (0, 0, 0)
        unsafe unsafeBitCast(symbol, to: Function.self)(&numbers.0, &numbers.1, &numbers.2)
        return "\(numbers.0).\(numbers.1).\(numbers.2)"
    }

    /// Calls a function without parameters that returns a 32-bit number.
    public func numberResult(ofFunction function: String) -> UInt32? {
        typealias Function = @convention(c) () -> UInt32
        guard let symbol = unsafe dlsym(handle, function) else { return nil }
        return unsafe unsafeBitCast(symbol, to: Function.self)()
    }
}
