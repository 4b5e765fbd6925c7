internal import CLibIDN2
internal import Glibc

/// Internationalized host names according to UTS 46, non-transitional, by libidn2.
public enum DomainName {
    /// Message of the dynamic linker if the library cannot be used; nil once it is loaded. The initializer of a static
    /// runs once, however many threads call.
    private static let loadFailure: String? = unsafe idn2shim_load().map { unsafe String(cString: $0) }

    /// Returns the ASCII form of `name`, such as `xn--bcher-kva.example` for `bücher.example`.
    ///
    /// The result may contain any ASCII character: UTS 46 maps a fullwidth solidus to `/`. The caller checks that it is
    /// a host name.
    ///
    /// - Throws: `DomainNameError` for an invalid name, or if the library is not installed.
    public static func asciiForm(of name: String) throws(DomainNameError) -> String {
        if let loadFailure { throw DomainNameError(.notLoaded, detail: loadFailure) }
        guard !name.utf8.contains(0) else { throw DomainNameError(.invalidName, detail: "NUL in the name") }
        var result: UnsafeMutablePointer<CChar>?
        if let message = unsafe idn2shim_to_ascii(name, &result) {
            throw DomainNameError(.invalidName, detail: unsafe String(cString: message))
        }
        guard let text = unsafe result else { throw DomainNameError(.invalidName, detail: "empty result") }
        defer { unsafe free(text) }
        return unsafe String(cString: text)
    }
}

/// Reason why a host name has no ASCII form.
public struct DomainNameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// libidn2 is not installed, or lacks a function.
        public static let notLoaded = Code(name: "not loaded")
        /// UTS 46 does not allow the name.
        public static let invalidName = Code(name: "invalid name")
    }

    public let code: Code
    /// Message of libidn2 or of the dynamic linker. Contains no part of the name.
    public let detail: String

    public var description: String { "libidn2: \(code.name) (\(detail))" }

    init(_ code: Code, detail: String) {
        self.code = code
        self.detail = detail
    }
}
