internal import CHiredis

/// The shared library hiredis, loaded on first use. A program without a reader never loads it.
public enum HiredisLibrary {
    /// Message of the dynamic linker if the library cannot be used; nil once it is loaded. The initializer of a static
    /// runs once, however many threads call.
    private static let failure: String? = unsafe hiredis_load().map { unsafe String(cString: $0) }

    /// Version of the library's interface, such as 0.14; nil if it is not installed. Loads the library.
    public static var version: String? {
        failure == nil ? unsafe hiredis_version().map { unsafe String(cString: $0) } : nil
    }

    /// Loads the library, unless it is loaded.
    ///
    /// - Throws: `HiredisError` if it is not installed, or lacks a function.
    static func load() throws(HiredisError) {
        if let failure { throw HiredisError(.notLoaded, loadFailure: failure) }
    }
}
