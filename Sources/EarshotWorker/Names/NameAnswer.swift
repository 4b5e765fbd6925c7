/// What is known about a host name.
enum NameAnswer: Equatable {
    /// Numeric addresses, IPv6 without brackets; at least one.
    case addresses([String])
    /// There is no such name.
    case unknown
    /// Nobody could tell.
    case failed

    /// The answer to a name that needs no lookup: `localhost` and `invalid` and the names below them, RFC 6761,
    /// sections 6.3 and 6.4. Nil for any other name.
    ///
    /// - Parameter name: Lower-case.
    static func special(_ name: String) -> NameAnswer? {
        let labels = name.split(separator: ".", omittingEmptySubsequences: true)
        switch labels.last {
        case "localhost": return .addresses(["127.0.0.1", "::1"])
        case "invalid": return .unknown
        default: return nil
        }
    }

    /// Returns addresses in libcurl's form for a host and a port (CURLOPT_RESOLVE).
    ///
    /// A name that ends in a dot is given in both spellings: libcurl looks it up without.
    static func resolveEntries(host: String, port: UInt16, _ addresses: [String]) -> [String] {
        let list = addresses.map { $0.utf8.contains(UInt8(ascii: ":")) ? "[\($0)]" : $0 }.joined(separator: ",")
        let names = host.utf8.last == UInt8(ascii: ".") ? [host, String(host.dropLast())] : [host]
        return names.map { "\($0):\(port):\(list)" }
    }
}
