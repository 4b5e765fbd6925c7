/// Settings with a list of words each, by their names on the command line and in files.
///
/// Parser, configuration file, environment variable, list of settings and the lines between supervisor and broker
/// derive from this table. SET does not change them.
public enum ListSettingName: String, CaseIterable, Sendable {
    case allowedUsers = "users"
    case clientListenAddresses = "listen"
    case httpDoorAddresses = "http"
    case httpDoorAllowedUsers = "http-users"
    case httpAPIAddresses = "http-api"
    case httpAPIAllowedOrigins = "http-origins"
    case httpTokenFiles = "http-tokens"
    case httpRewrittenIndexHosts = "http-rewrite"

    /// Text of an empty list.
    static let emptyListText = "-"
    /// Maximum number of words in a list: more than an administrator maintains by hand.
    static let maximumWords = 100
    /// Maximum bytes of a word. A name of useradd(8) has at most 256.
    static let maximumWordBytes = 257

    /// A noun phrase for help texts.
    public var helpPhrase: String {
        switch self {
        case .allowedUsers: "other users of the bus, as user names, @GROUP or user IDs; a private bus without them"
        case .clientListenAddresses:
            "addresses for clients on other machines, as tcp://ADDRESS:PORT; no such clients without them"
        case .httpDoorAddresses: "addresses of the HTTP door, as PORT, ADDRESS:PORT or unix:PATH; no proxy without them"
        case .httpDoorAllowedUsers: "other users of the HTTP door, as user names or user IDs"
        case .httpAPIAddresses: "addresses of the HTTP API, in the same form; no API without them"
        case .httpAPIAllowedOrigins: "origins of pages that may use the HTTP API, as https://HOST"
        case .httpTokenFiles: "files, each with a token for HTTP clients beyond loopback"
        case .httpRewrittenIndexHosts: "hosts whose package indexes keep their URLs below the prefix of the HTTP door"
        }
    }

    /// Description of the possible values for help and error messages.
    public var possibleValuesDescription: String {
        "words without spaces, separated by commas, at most \(Self.maximumWords); \(Self.emptyListText) for none"
    }

    /// An example of a file's value.
    public var exampleWords: [String] {
        switch self {
        case .allowedUsers: ["www-data", "@staff"]
        case .clientListenAddresses: ["tcp://0.0.0.0:5765", "tcp://[::1]:5765"]
        case .httpDoorAddresses: ["127.0.0.1:5768", "unix:/run/user/1000/earshot-http"]
        case .httpDoorAllowedUsers: ["_apt"]
        case .httpAPIAddresses: ["127.0.0.1:5769", "unix:/run/user/1000/earshot-api"]
        case .httpAPIAllowedOrigins: ["https://console.example.org"]
        case .httpTokenFiles: ["/etc/earshot/http-token"]
        case .httpRewrittenIndexHosts: ["pypi.org", "registry.npmjs.org"]
        }
    }

    /// Parses a list in text form.
    public func parseWords(_ text: String) throws(SettingError) -> [String] {
        guard text != Self.emptyListText else { return try checkedWords([]) }
        return try checkedWords(text.split(separator: ",", omittingEmptySubsequences: false).map(String.init))
    }

    /// Returns the words of a list.
    ///
    /// - Throws: `SettingError` if there are too many, or one is empty, too long, or not visible ASCII without commas.
    public func checkedWords(_ words: [String]) throws(SettingError) -> [String] {
        let comma = UInt8(ascii: ",")
        guard words.count <= Self.maximumWords,
            words.allSatisfy({ word in
                (1...Self.maximumWordBytes).contains(word.utf8.count) && word != Self.emptyListText
                    && word.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != comma }
            })
        else { throw SettingError("\(rawValue) must be \(possibleValuesDescription)") }
        return words
    }

    /// Returns a list in text form.
    func listText(_ words: [String]) -> String { words.isEmpty ? Self.emptyListText : words.joined(separator: ",") }
}
