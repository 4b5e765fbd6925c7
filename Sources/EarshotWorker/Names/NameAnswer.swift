/// Result of the lookup of a host name.
enum NameAnswer: Equatable {
    /// Numeric addresses, at least one. IPv6 addresses have no brackets.
    case addresses([String])
    /// The name does not exist.
    case unknown
    /// No name server gave an answer.
    case failed

    /// Returns the answer for a name that needs no lookup; nil for any other name. Such names are `localhost`,
    /// `invalid` and names below them: RFC 6761, sections 6.3 and 6.4.
    ///
    /// - Parameter name: Lower-case name.
    static func special(_ name: String) -> NameAnswer? {
        let labels = name.split(separator: ".", omittingEmptySubsequences: true)
        switch labels.last {
        case "localhost": return .addresses(["127.0.0.1", "::1"])
        case "invalid": return .unknown
        default: return nil
        }
    }

    /// Returns the addresses of a host and port in the form of CURLOPT_RESOLVE.
    ///
    /// For a name with a trailing dot the list contains both spellings, because libcurl looks it up without the dot.
    static func resolveEntries(host: String, port: UInt16, _ addresses: [String]) -> [String] {
        let list = addresses.map { $0.utf8.contains(UInt8(ascii: ":")) ? "[\($0)]" : $0 }.joined(separator: ",")
        let names = host.utf8.last == UInt8(ascii: ".") ? [host, String(host.dropLast())] : [host]
        return names.map { "\($0):\(port):\(list)" }
    }
}
