/// Normalized absolute URL that can be fetched.
///
/// Two URLs are equal if their normalized forms are equal byte by byte. The normalized form is ASCII without controls,
/// spaces, backslashes and fragment. Scheme and host are in lower case, a numeric host is a canonical address, and a
/// default port is omitted. After an authority follows a path that begins with `/` and has no dot segments. A URL
/// without authority (`thumb:x`) is opaque: the worker that registered the scheme interprets its path. Percent-escapes
/// are kept, as in the URL standard, because decoding them could change the request's meaning.
///
/// Sources: RFC 3986, and the URL standard where clients agree to differ from it.
public struct FetchURL: Hashable, Sendable, CustomStringConvertible {
    /// Normalized URL including user information: not for logs.
    public let description: String

    /// Positions of the parts in `description`.
    private let layout: Layout

    /// Byte offsets in the normalized URL, which has at most `HTTPLimits.urlBytes` bytes.
    struct Layout: Sendable {
        /// Index of the colon after the scheme.
        var schemeEnd: UInt16
        /// Index of the host's first byte, including a bracket; `pathStart` without authority.
        var hostStart: UInt16
        /// Index after the host, including a bracket.
        var hostEnd: UInt16
        /// Index of the path's first byte.
        var pathStart: UInt16
        /// Index of the question mark, or the end.
        var queryStart: UInt16
        /// Port, or the scheme's default; nil if neither is known.
        var port: UInt16?
        /// Whether `//` follows the scheme.
        var hasAuthority: Bool
        /// Whether the scheme is http or https.
        var isHTTP: Bool
    }

    /// Parses an absolute URL of at most `HTTPLimits.urlBytes` bytes. A normalized URL keeps the storage of `text`.
    public init(_ text: String) throws(ParseError) {
        let utf8 = text.utf8
        let bytes = utf8.span
        let parts = try URLParts(bytes)
        if parts.isNormalized {
            description = text
            layout = parts.layout
        } else {
            (description, layout) = try parts.serialized(bytes)
        }
    }

    /// Parses an absolute URL with a possibly internationalized host name.
    ///
    /// - Parameter hostEncoder: Called only for such names, so that ASCII URLs cost nothing extra. Without it such
    ///   names are rejected.
    public init(_ text: String, hostEncoder: HostNameEncoder?) throws(ParseError) {
        do throws(ParseError) { try self.init(text) } catch {
            let utf8 = text.utf8
            try self.init(encodingHost: utf8.span, hostEncoder, after: error)
        }
    }

    /// Parses bytes, which need not be UTF-8, for example those of a `Location`.
    init(bytes: Span<UInt8>, hostEncoder: HostNameEncoder? = nil) throws(ParseError) {
        do throws(ParseError) { try self.init(serializing: bytes) } catch {
            try self.init(encodingHost: bytes, hostEncoder, after: error)
        }
    }

    /// Parses bytes that were rejected with `error` again, with their host converted to ASCII.
    private init(
        encodingHost bytes: Span<UInt8>, _ hosts: HostNameEncoder?, after error: ParseError
    ) throws(ParseError) {
        guard let hosts, error == .nonASCIIHost || error == .escapedHost,
            let ascii = try hosts.urlWithASCIIHost(bytes)
        else { throw error }
        try self.init(serializing: ascii.span)
    }

    private init(serializing bytes: Span<UInt8>) throws(ParseError) {
        (description, layout) = try URLParts(bytes).serialized(bytes)
    }

    /// Scheme in lower case, without the colon.
    public var scheme: Substring { slice(from: 0, to: layout.schemeEnd) }

    /// Whether the scheme is http or https, which implies a host.
    public var isHTTP: Bool { layout.isHTTP }

    /// Whether the URL has no authority, so that it cannot be a base for relative references.
    public var isOpaque: Bool { !layout.hasAuthority }

    /// User name and, after a colon, password, as written; nil if absent.
    public var userinfo: Substring? {
        hasUserinfo ? slice(from: layout.schemeEnd + 3, to: layout.hostStart - 1) : nil
    }

    /// Whether the URL contains a user name or password.
    public var hasUserinfo: Bool { layout.hasAuthority && layout.hostStart > layout.schemeEnd + 3 }

    /// Host in lower case, without the brackets of an IPv6 address; empty if absent. The zone of an address follows it
    /// after `%25`, as written.
    public var host: Substring {
        hasBracketedHost
            ? slice(from: layout.hostStart + 1, to: layout.hostEnd - 1)
            : slice(from: layout.hostStart, to: layout.hostEnd)
    }

    /// Address of a numeric host, without its zone; nil for a name.
    public var address: IPAddress? { IPAddress(host: String(host)) }

    /// Port, or the scheme's default; nil for a scheme without a default.
    public var port: UInt16? { layout.port }

    /// Path; begins with `/` unless the URL is opaque.
    public var path: Substring { slice(from: layout.pathStart, to: layout.queryStart) }

    /// Query without its question mark; nil if absent, as opposed to empty.
    public var query: Substring? {
        let end = UInt16(description.utf8.count)
        return layout.queryStart < end ? slice(from: layout.queryStart + 1, to: end) : nil
    }

    /// Scheme, host and port.
    public var origin: Origin { Origin(scheme: String(scheme), host: String(host), port: port) }

    /// Canonical name of the origin: equal for two URLs if and only if they have the same origin.
    public var originName: String {
        if let end = originNameEnd { return String(slice(from: 0, to: end)) }
        return String(slice(from: 0, to: layout.schemeEnd + 3) + slice(from: layout.hostStart, to: layout.pathStart))
    }

    /// Hash of `originName` with the process's seed.
    public var originHash: Int {
        guard let end = originNameEnd else { return Self.hash(originName, upTo: originName.utf8.count) }
        return Self.hash(description, upTo: Int(end))
    }

    /// Returns whether `name` is equal to `originName`, usually without an allocation.
    public func hasOrigin(named name: String) -> Bool {
        guard let end = originNameEnd else { return originName == name }
        guard name.utf8.count == Int(end) else { return false }
        let (own, wanted) = (description.utf8, name.utf8)
        let (bytes, span) = (own.span, wanted.span)
        for index in span.indices where bytes[index] != span[index] { return false }
        return true
    }

    /// End of `originName` if it is a prefix of the URL; nil if there is user information.
    private var originNameEnd: UInt16? {
        guard layout.hostStart < layout.pathStart else { return layout.schemeEnd + 1 }
        return hasUserinfo ? nil : layout.pathStart
    }

    /// Hashes eight bytes at a time.
    private static func hash(_ text: String, upTo end: Int) -> Int {
        let utf8 = text.utf8
        let bytes = utf8.span
        var hasher = Hasher()
        var start = 0
        while start + 8 <= end {
            let eight = bytes.extracting(start..<start + 8)
            var word: UInt64 = 0
            for index in 0..<8 { word |= UInt64(eight[index]) << UInt64(8 * index) }
            hasher.combine(word)
            start += 8
        }
        var rest = UInt64(end - start)
        for index in start..<end { rest = rest << 8 | UInt64(bytes[index]) }
        hasher.combine(rest)
        return hasher.finalize()
    }

    /// URL without user information and query, which may contain passwords and tokens: the form for logs.
    public var redacted: String {
        let authority = layout.hasAuthority ? layout.schemeEnd + 3 : layout.pathStart
        return String(slice(from: 0, to: authority)) + slice(from: layout.hostStart, to: layout.queryStart)
    }

    /// Returns the URL with the user information of `other`, or without any if `other` is nil or has none.
    func withUserinfo(of other: FetchURL?) throws(ParseError) -> FetchURL {
        guard layout.hasAuthority, userinfo != other?.userinfo else { return self }
        let userinfo = other?.userinfo.map { $0 + "@" } ?? ""
        let end = UInt16(description.utf8.count)
        return try FetchURL(
            String(slice(from: 0, to: layout.schemeEnd + 3)) + userinfo + slice(from: layout.hostStart, to: end))
    }

    public static func == (left: FetchURL, right: FetchURL) -> Bool { left.description == right.description }

    public func hash(into hasher: inout Hasher) { hasher.combine(description) }

    /// Returns the part of this URL to which a relative `reference` is appended.
    ///
    /// - Parameter reference: Relative reference, not empty. A shortened form of RFC 3986, section 5.2.2: the result is
    ///   parsed again, which removes dot segments.
    func basePrefix(for reference: Span<UInt8>) -> Substring {
        let solidus = UInt8(ascii: "/")
        if reference[0] == UInt8(ascii: "?") { return slice(from: 0, to: layout.queryStart) }
        guard reference[0] == solidus else {
            let file = path.utf8.reversed().prefix { $0 != solidus }.count
            return slice(from: 0, to: layout.queryStart - UInt16(file))
        }
        let isNetworkPath = reference.count > 1 && reference[1] == solidus
        return slice(from: 0, to: isNetworkPath ? layout.schemeEnd + 1 : layout.pathStart)
    }

    private var hasBracketedHost: Bool {
        let utf8 = description.utf8
        return layout.hostEnd > layout.hostStart
            && utf8[utf8.index(utf8.startIndex, offsetBy: Int(layout.hostStart))] == UInt8(ascii: "[")
    }

    private func slice(from start: UInt16, to end: UInt16) -> Substring {
        // Slices the UTF-8 view, which needs no search for character boundaries: all of it is ASCII.
        let utf8 = description.utf8
        let first = utf8.index(utf8.startIndex, offsetBy: Int(start))
        return Substring(utf8[first..<utf8.index(first, offsetBy: Int(end - start))])
    }
}

extension FetchURL {
    /// Resolves `reference` with this URL as its base; its fragment is dropped.
    ///
    /// RFC 3986, section 5.2, not strict: a reference with this URL's own scheme and no authority (`http:g`) is
    /// relative, as in the URL standard for http and https.
    public func resolve(_ reference: String, hostEncoder: HostNameEncoder? = nil) throws(ParseError) -> FetchURL {
        let utf8 = reference.utf8
        return try resolve(utf8.span, hostEncoder: hostEncoder)
    }

    /// Implements `resolve(_:)` for bytes, which need not be UTF-8.
    ///
    /// - Parameter hostEncoder: Encoder of an internationalized host name in `reference`.
    func resolve(_ reference: Span<UInt8>, hostEncoder: HostNameEncoder? = nil) throws(ParseError) -> FetchURL {
        var reference = reference
        if let colon = URLParts.schemeEnd(reference) {
            let rest = reference.extracting(colon + 1..<reference.count)
            let isAbsolute = rest.count > 1 && rest[0] == UInt8(ascii: "/") && rest[1] == UInt8(ascii: "/")
            guard isHTTP, !isAbsolute, matchesIgnoringCase(reference, in: 0..<colon, lowercase: String(scheme)) else {
                return try FetchURL(bytes: reference, hostEncoder: hostEncoder)
            }
            reference = rest
        }
        // A bare fragment is parsed as well, because it must not contain controls.
        if reference.isEmpty { return self }
        guard !isOpaque || reference[0] == UInt8(ascii: "#") else { throw .opaqueBase }
        let base = reference[0] == UInt8(ascii: "#") ? description[...] : basePrefix(for: reference)
        guard reference.count <= HTTPLimits.urlBytes else { throw .tooLong }
        var target = Array(base.utf8)
        for index in reference.indices { target.append(reference[index]) }
        return try FetchURL(bytes: target.span, hostEncoder: hostEncoder)
    }
}

extension FetchURL {
    /// Reason why a text is not a fetchable URL.
    public enum ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Longer than `HTTPLimits.urlBytes`, as given or normalized.
        case tooLong
        /// C0 control or DEL, including tab, CR, LF and NUL.
        case controlCharacter
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
            case .controlCharacter: "The URL holds a control character."
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
