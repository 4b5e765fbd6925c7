extension FetchURL {
    /// Reason why a text is not a fetchable URL.
    public enum ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Longer than `HTTPLimits.urlBytes`, as given or normalized.
        case tooLong
        /// C0 control or DEL, including tab, CR, LF and NUL.
        case control
        /// Backslash, which some programs read as `/` and others do not: a known attack.
        case backslash
        /// No scheme.
        case missingScheme
        /// http or https URL without a host.
        case missingHost
        /// Percent-escape in the host.
        case escapedHost
        /// Byte above 0x7f in the host of a scheme other than http and https.
        case nonASCIIHost
        /// Internationalized host name without an ASCII form, with the reason.
        case invalidHostName(String)
        /// Invalid byte, label or length in a host name.
        case invalidHost
        /// Host that ends in a number, or is in brackets, but is not an address.
        case invalidAddress
        /// Port that is not a number from 1 to 65535.
        case invalidPort
        /// Byte in the user information that RFC 3986 requires to be escaped, such as a second `@`.
        case invalidUserinfo
        /// Relative reference with a base URL without authority.
        case opaqueBase

        /// Message for the user. It contains no part of the URL.
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
