/// Settings with a list of words each, by their names on the command line and in files.
///
/// Parser, configuration file, environment variable, list of settings and the lines between supervisor and broker derive
/// from this table. SET does not change them.
public enum ListSettingName: String, CaseIterable, Sendable {
    case users
    case listen
    case http
    case httpUsers = "http-users"
    case httpAPI = "http-api"
    case httpOrigins = "http-origins"
    case httpTokens = "http-tokens"
    case httpRewrite = "http-rewrite"

    /// Text of an empty list.
    static let none = "-"
    /// Maximum number of words in a list: more than an administrator maintains by hand.
    static let mostWords = 100
    /// Maximum bytes of a word. A name of useradd(8) has at most 256.
    static let wordBytes = 257

    /// A noun phrase for help texts.
    public var help: String {
        switch self {
        case .users: "other users of the bus, as user names, @GROUP or user IDs; a private bus without them"
        case .listen: "addresses for clients on other machines, as tcp://ADDRESS:PORT; no such clients without them"
        case .http: "addresses of the HTTP door, as PORT, ADDRESS:PORT or unix:PATH; no proxy without them"
        case .httpUsers: "other users of the HTTP door, as user names or user IDs"
        case .httpAPI: "addresses of the HTTP API, in the same form; no API without them"
        case .httpOrigins: "origins of pages that may use the HTTP API, as https://HOST"
        case .httpTokens: "files, each with a token for HTTP clients beyond loopback"
        case .httpRewrite: "hosts whose package indexes keep their URLs below the prefix of the HTTP door"
        }
    }

    /// Description of the possible values for help and error messages.
    public var bounds: String {
        "words without spaces, separated by commas, at most \(Self.mostWords); \(Self.none) for none"
    }

    /// An example of a file's value.
    public var example: [String] {
        switch self {
        case .users: ["www-data", "@staff"]
        case .listen: ["tcp://0.0.0.0:5765", "tcp://[::1]:5765"]
        case .http: ["127.0.0.1:5768", "unix:/run/user/1000/earshot-http"]
        case .httpUsers: ["_apt"]
        case .httpAPI: ["127.0.0.1:5769", "unix:/run/user/1000/earshot-api"]
        case .httpOrigins: ["https://console.example.org"]
        case .httpTokens: ["/etc/earshot/http-token"]
        case .httpRewrite: ["pypi.org", "registry.npmjs.org"]
        }
    }

    /// Parses a list in text form.
    public func value(_ text: String) throws(SettingError) -> [String] {
        let words =
            text == Self.none ? [] : text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        return try checkedWords(words)
    }

    /// Returns the words of a list.
    ///
    /// - Throws: `SettingError` if there are too many, or one is empty, too long, or not visible ASCII without commas.
    public func checkedWords(_ words: [String]) throws(SettingError) -> [String] {
        let comma = UInt8(ascii: ",")
        guard words.count <= Self.mostWords,
            words.allSatisfy({ word in
                (1...Self.wordBytes).contains(word.utf8.count) && word != Self.none
                    && word.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != comma }
            })
        else { throw SettingError("\(rawValue) must be \(bounds)") }
        return words
    }

    /// Returns a list in text form.
    func text(_ words: [String]) -> String { words.isEmpty ? Self.none : words.joined(separator: ",") }
}
