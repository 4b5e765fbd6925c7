internal import Glibc

/// The process's environment.
public enum Environment {
    /// A variable that is set and not empty.
    public static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe String(cString: value)
        return text.isEmpty ? nil : text
    }
}
