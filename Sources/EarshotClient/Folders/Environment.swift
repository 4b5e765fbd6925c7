internal import EarshotLoop
internal import Glibc

/// Environment variables of the process, for the search for a bus and its folders.
package enum Environment {
    /// Returns a variable; nil if it is unset or empty. Bytes that are not UTF-8 are kept in the form of `ByteText`.
    ///
    /// - Parameter name: name of the variable.
    package static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe ByteText.text(cString: value)
        return text.isEmpty ? nil : text
    }
}
