internal import EarshotLoop

/// Address of the HTTP door, in the form of the settings `http` and `http-api`.
enum DoorAddress {
    static let defaultPort = 5_768

    /// Returns whether other machines can reach a listener. The door knows the users of this machine only, so others
    /// need a token.
    static func isRemote(_ listener: String) -> Bool {
        guard let colon = listener.lastIndex(of: ":"), !listener.hasPrefix("/") else { return false }
        return switch TCPSocket.Address(urlHost: listener[..<colon]) {
        case .ipv4(let bytes)?: bytes[0] != 127
        case .ipv6(let bytes, _)?: !bytes.dropLast().allSatisfy { $0 == 0 } || bytes[15] != 1
        case nil: false
        }
    }

    /// Returns the address in the form of `earshot-web`, `ADDRESS:PORT` or an absolute path; nil for other text.
    static func listener(_ text: String) -> String? {
        if text.hasPrefix("unix:") {
            let path = text.dropFirst(5)
            return path.hasPrefix("/") && path.utf8.count <= 107 ? String(path) : nil
        }
        if let port = UInt16(text) { return "127.0.0.1:\(port)" }
        guard let colon = text.lastIndex(of: ":"), UInt16(text[text.index(after: colon)...]) != nil else { return nil }
        let isAddress = text[..<colon] == "localhost" || TCPSocket.Address(urlHost: text[..<colon]) != nil
        return isAddress ? text : nil
    }
}
