internal import EarshotHTTP

/// Addresses of names in a hosts file: hosts(5).
///
/// c-ares reads `/etc/hosts` itself. A sandbox permits it to open only the file that was there when the sandbox took effect, so
/// the broker sends the content of a later one.
struct HostsFile {
    /// Path of the system's file.
    static let path = "/etc/hosts"

    /// Addresses by lower-case name, in the order of the file.
    private var addresses: [String: [String]] = [:]

    init(_ bytes: [UInt8]) {
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            let words = line.prefix { $0 != UInt8(ascii: "#") }
                .split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\r") }
                .map { String(decoding: $0, as: UTF8.self) }
            guard let address = words.first, IPAddress(address) != nil else { continue }
            for name in words.dropFirst() { addresses[name.lowercased(), default: []].append(address) }
        }
    }

    /// Returns the addresses of a name; nil if the file lacks it.
    ///
    /// - Parameter name: Lower-case name.
    func addresses(of name: String) -> [String]? { addresses[name] }
}
