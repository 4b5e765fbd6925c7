internal import EarshotWire

/// User name and password for HTTP Basic authentication: RFC 7617.
struct BasicCredentials: Equatable {
    let user: String
    let password: String

    init(user: String, password: String) {
        self.user = user
        self.password = password
    }

    /// Parses `USER:PASSWORD`. The user may be empty, and the password may contain colons.
    init?(_ text: String) {
        guard let colon = text.firstIndex(of: ":") else { return nil }
        self.init(user: String(text[..<colon]), password: String(text[text.index(after: colon)...]))
    }

    /// The header field of the credentials.
    var field: String { "authorization: Basic " + Base64.encoded(Array("\(user):\(password)".utf8)) }
}
