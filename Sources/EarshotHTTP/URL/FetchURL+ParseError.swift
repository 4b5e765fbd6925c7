extension FetchURL {
    /// Why a text is no URL that could be fetched.
    public enum ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Longer than `HTTPLimits.urlBytes`, as given or in normal form.
        case tooLong
        /// A C0 control or DEL anywhere: tab, CR, LF and NUL among them.
        case control
        /// A backslash: some read it as `/`, some do not, and what two programs read differently is an attack.
        case backslash
        /// No scheme in front.
        case missingScheme
        /// An http or https URL without a host.
        case missingHost
        /// A percent-escape in the host.
        case escapedHost
        /// A byte over 0x7f in the host of another scheme than http and https.
        case nonASCIIHost
        /// An internationalized host name without an ASCII form, and the reason.
        case invalidHostName(String)
        /// A byte, a label or a length that no host name has.
        case invalidHost
        /// A host that ends in a number, or stands in brackets, and is no address.
        case invalidAddress
        /// Something else than 1 to 65535 for a port.
        case invalidPort
        /// A byte in the user information that RFC 3986 wants escaped, a second `@` first of all.
        case invalidUserinfo
        /// A relative reference, resolved against a URL without authority.
        case opaqueBase

        /// A sentence for people. It holds nothing of the URL.
        public var description: String {
            switch self {
            case .tooLong: "The URL is longer than \(HTTPLimits.urlBytes) bytes."
            case .control: "The URL holds a control character."
            case .backslash: "The URL holds a backslash; write / or %5C."
            case .missingScheme: "The URL does not begin with a scheme such as https:."
            case .missingHost: "The URL has no host."
            case .escapedHost: "The host holds a percent-escape; write it plainly."
            case .nonASCIIHost: "The host is not ASCII; write it in its xn-- form."
            case .invalidHostName(let reason): "The host is not a valid internationalized name: \(reason)."
            case .invalidHost: "The host is not a valid name."
            case .invalidAddress: "The host is not a valid IP address."
            case .invalidPort: "The port is not a number from 1 to 65535."
            case .invalidUserinfo: "The user name or password holds a character that must be percent-encoded."
            case .opaqueBase: "A relative URL needs a base with a host."
            }
        }
    }
}
