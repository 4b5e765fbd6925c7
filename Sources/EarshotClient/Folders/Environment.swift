internal import EarshotLoop
internal import Glibc

/// The process's environment.
public enum Environment {
    /// A variable that is set and not empty. Bytes that are not UTF-8 are kept: ``ByteText``.
    public static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe ByteText.text(cString: value)
        return text.isEmpty ? nil : text
    }
}
