/// An absolute URL that can be fetched, in normal form.
///
/// Two URLs are equal when their normal forms are, byte by byte. The normal form is ASCII without controls, spaces,
/// backslashes and fragment; its scheme and host are lower-case, a numeric host is a canonical address, a default port
/// is dropped, and after an authority comes a path that starts with `/` and has no dot segments. What has no authority
/// (`thumb:x`) is opaque: its path is the business of the worker that registered the scheme. Percent-escapes stay as
/// they were written: the URL standard keeps them too, and decoding some would tell a server something else than asked.
///
/// Sources: RFC 3986, and the URL standard where clients agree to differ from it.
public struct FetchURL: Hashable, Sendable, CustomStringConvertible {
    /// The normal form, user information included: not for logs.
    public let description: String

    /// Where the parts are in `description`.
    private let layout: Layout

    /// Offsets of bytes in the normal form, which has at most `HTTPLimits.urlBytes` of them.
    struct Layout: Sendable {
        /// The colon after the scheme.
        var schemeEnd: UInt16
        /// The host's first byte, a bracket included; `pathStart` if there is no authority.
        var hostStart: UInt16
        /// The byte after the host, a bracket included.
        var hostEnd: UInt16
        /// The path's first byte.
        var pathStart: UInt16
        /// The question mark, or the end.
        var queryStart: UInt16
        /// The port, or the scheme's default; nil if neither is known.
        var port: UInt16?
        /// Whether `//` follows the scheme.
        var hasAuthority: Bool
        /// Whether the scheme is http or https.
        var isHTTP: Bool
    }

    /// Reads an absolute URL, at most `HTTPLimits.urlBytes` long. A URL in normal form keeps the storage of `text`.
    public init(_ text: String) throws(ParseError) {
        let utf8 = text.utf8
        let bytes = utf8.span
        let parts = try URLParts(bytes)
        if parts.isNormal {
            description = text
            layout = parts.layout
        } else {
            (description, layout) = try parts.serialized(bytes)
        }
    }

    /// Reads an absolute URL whose host may be an internationalized name.
    ///
    /// - Parameter hosts: Called for such names alone, so that URLs in ASCII cost no more. Without it they are refused.
    public init(_ text: String, hosts: HostNameEncoder?) throws(ParseError) {
        do throws(ParseError) { try self.init(text) } catch {
            let utf8 = text.utf8
            try self.init(encodingHost: utf8.span, hosts, after: error)
        }
    }

    /// Reads bytes, which need not be UTF-8: the `Location` of a response is not always.
    init(bytes: Span<UInt8>, hosts: HostNameEncoder? = nil) throws(ParseError) {
        do throws(ParseError) { try self.init(serializing: bytes) } catch {
            try self.init(encodingHost: bytes, hosts, after: error)
        }
    }

    /// Reads bytes that were refused for `error`, once more with their host in ASCII.
    private init(
        encodingHost bytes: Span<UInt8>, _ hosts: HostNameEncoder?, after error: ParseError
    ) throws(ParseError) {
        guard let hosts, error == .nonASCIIHost || error == .escapedHost,
            let ascii = try hosts.encodingHost(of: bytes)
        else { throw error }
        try self.init(serializing: ascii.span)
    }

    private init(serializing bytes: Span<UInt8>) throws(ParseError) {
        (description, layout) = try URLParts(bytes).serialized(bytes)
    }

    /// The scheme, lower-case, without the colon.
    public var scheme: Substring { slice(0, layout.schemeEnd) }

    /// Whether the scheme is http or https; if so there is a host.
    public var isHTTP: Bool { layout.isHTTP }

    /// Whether the URL has no authority, so that nothing can be resolved against it.
    public var isOpaque: Bool { !layout.hasAuthority }

    /// User name and, after a colon, password, as written; nil if there are none.
    public var userinfo: Substring? {
        hasUserinfo ? slice(layout.schemeEnd + 3, layout.hostStart - 1) : nil
    }

    /// Whether the URL carries a user name or a password.
    public var hasUserinfo: Bool { layout.hasAuthority && layout.hostStart > layout.schemeEnd + 3 }

    /// The host, lower-case, without the brackets of an IPv6 address; empty if there is none.
    public var host: Substring {
        hasBrackets ? slice(layout.hostStart + 1, layout.hostEnd - 1) : slice(layout.hostStart, layout.hostEnd)
    }

    /// The host as an address; nil if it is a name.
    public var address: IPAddress? { IPAddress(String(host)) }

    /// The port, or the scheme's default; nil for a scheme without one.
    public var port: UInt16? { layout.port }

    /// The path; starts with `/` unless the URL is opaque.
    public var path: Substring { slice(layout.pathStart, layout.queryStart) }

    /// The query without its question mark; nil if there is none, which is not the same as an empty one.
    public var query: Substring? {
        let end = UInt16(description.utf8.count)
        return layout.queryStart < end ? slice(layout.queryStart + 1, end) : nil
    }

    /// Scheme, host and port.
    public var origin: Origin {
        let host = host
        let name = host.utf8.last == UInt8(ascii: ".") ? host.dropLast() : host
        return Origin(scheme: String(scheme), host: String(name), port: port)
    }

    /// What its origin can be known by: two URLs have the same one if, and only if, they have the same origin.
    ///
    public var originName: String {
        if let end = originNameEnd { return String(slice(0, end)) }
        let host = slice(layout.hostStart, layout.hostEnd - (hasFinalDot ? 1 : 0))
        return String(slice(0, layout.schemeEnd + 3) + host + slice(layout.hostEnd, layout.pathStart))
    }

    /// A hash of `originName`, by the process's seed.
    public var originHash: Int {
        guard let end = originNameEnd else { return Self.hash(originName, upTo: originName.utf8.count) }
        return Self.hash(description, upTo: Int(end))
    }

    /// Whether `name` is `originName`. Mostly nothing is made to see that.
    public func isOf(originNamed name: String) -> Bool {
        guard let end = originNameEnd else { return originName == name }
        guard name.utf8.count == Int(end) else { return false }
        let (own, wanted) = (description.utf8, name.utf8)
        let (bytes, span) = (own.span, wanted.span)
        for index in span.indices where bytes[index] != span[index] { return false }
        return true
    }

    /// Where `originName` ends, if the URL begins with it: nil if there is user information or a dot at the end of the
    /// host.
    private var originNameEnd: UInt16? {
        guard layout.hostStart < layout.pathStart else { return layout.schemeEnd + 1 }
        return hasUserinfo || hasFinalDot ? nil : layout.pathStart
    }

    private var hasFinalDot: Bool {
        guard layout.hostEnd > layout.hostStart else { return false }
        let utf8 = description.utf8
        return utf8.span[Int(layout.hostEnd) - 1] == UInt8(ascii: ".")
    }

    /// Eight bytes at a time.
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

    /// The URL without user information and query, which hold passwords and tokens: the form for logs.
    public var redacted: String {
        let authority = layout.hasAuthority ? layout.schemeEnd + 3 : layout.pathStart
        return String(slice(0, authority)) + slice(layout.hostStart, layout.queryStart)
    }

    /// The URL with the user information of `other`, or without any if that has none or is nil.
    func withUserinfo(of other: FetchURL?) throws(ParseError) -> FetchURL {
        guard layout.hasAuthority, userinfo != other?.userinfo else { return self }
        let userinfo = other?.userinfo.map { $0 + "@" } ?? ""
        let end = UInt16(description.utf8.count)
        return try FetchURL(String(slice(0, layout.schemeEnd + 3)) + userinfo + slice(layout.hostStart, end))
    }

    public static func == (left: FetchURL, right: FetchURL) -> Bool { left.description == right.description }

    public func hash(into hasher: inout Hasher) { hasher.combine(description) }

    /// What `reference` is taken relative to, for a relative one: this URL's bytes up to where it goes on.
    ///
    /// - Parameter reference: Not empty, without a scheme. RFC 3986, section 5.2.2, cut short: what follows is parsed
    ///   again, which removes dot segments.
    func base(for reference: Span<UInt8>) -> Substring {
        let solidus = UInt8(ascii: "/")
        if reference[0] == UInt8(ascii: "?") { return slice(0, layout.queryStart) }
        guard reference[0] == solidus else {
            let file = path.utf8.reversed().prefix { $0 != solidus }.count
            return slice(0, layout.queryStart - UInt16(file))
        }
        let isNetworkPath = reference.count > 1 && reference[1] == solidus
        return slice(0, isNetworkPath ? layout.schemeEnd + 1 : layout.pathStart)
    }

    private var hasBrackets: Bool {
        let utf8 = description.utf8
        return layout.hostEnd > layout.hostStart
            && utf8[utf8.index(utf8.startIndex, offsetBy: Int(layout.hostStart))] == UInt8(ascii: "[")
    }

    private func slice(_ start: UInt16, _ end: UInt16) -> Substring {
        // Not of the text itself, which would look for the beginnings of characters: all of it is ASCII.
        let utf8 = description.utf8
        let first = utf8.index(utf8.startIndex, offsetBy: Int(start))
        return Substring(utf8[first..<utf8.index(first, offsetBy: Int(end - start))])
    }
}
