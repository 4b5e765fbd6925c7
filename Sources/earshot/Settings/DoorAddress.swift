internal import EarshotLoop

/// Address of the HTTP door, in the form of the setting `http`.
enum DoorAddress {
    static let usualPort = 5_768

    /// Returns the address in the form of `earshot-web`, `ADDRESS:PORT` or an absolute path; nil for other text. Only this machine
    /// can reach it, because the door knows the users of this machine only.
    static func listener(_ text: String) -> String? {
        if text.hasPrefix("unix:") {
            let path = text.dropFirst(5)
            return path.hasPrefix("/") && path.utf8.count <= 107 ? String(path) : nil
        }
        if let port = UInt16(text) { return "127.0.0.1:\(port)" }
        guard let colon = text.lastIndex(of: ":"), UInt16(text[text.index(after: colon)...]) != nil else { return nil }
        switch text[..<colon] == "localhost" ? .four([127, 0, 0, 1]) : TCPSocket.Address(urlHost: text[..<colon]) {
        case .four(let bytes)?: return bytes[0] == 127 ? text : nil
        case .six?: return text[..<colon] == "[::1]" ? text : nil
        case nil: return nil
        }
    }
}
