extension Terminal {
    /// A redirect that led to the response of a terminal.
    public struct Redirect: Hashable, Sendable {
        /// Status of the redirect.
        public var status: Int
        /// URL of its target, in normal form; nil if the list had no room for it.
        public var url: String?

        public init(status: Int, url: String?) {
            self.status = status
            self.url = url
        }
    }
}

extension [Terminal.Redirect] {
    /// Mark for the URL of a redirect that has no room.
    private static var omission: String { "-" }

    /// Reads pairs of status and URL.
    init(_ text: HeadText) throws(WireError) {
        self = []
        // Bytes that are not UTF-8 become longer. The list could otherwise not be written again.
        let string = text.string
        guard string.utf8.count <= WireLimits.redirectsBytes else {
            throw WireError(.badMessage, "redirects must have at most \(WireLimits.redirectsBytes) bytes")
        }
        var words = string.split(separator: " ")[...]
        while let status = words.popFirst() {
            guard let number = Int(status), (300...399).contains(number), let url = words.popFirst() else {
                throw WireError(.badMessage, "redirects must be pairs of a status and a URL")
            }
            append(Terminal.Redirect(status: number, url: url == Self.omission ? nil : String(url)))
        }
    }

    /// The redirects as the field holds them: without the URLs for which its `WireLimits.redirectsBytes` have no room.
    public var bounded: [Terminal.Redirect] {
        // Each redirect but the first needs a space, its status, a space and at least a mark.
        var room = WireLimits.redirectsBytes - count * 6 + 1
        return map { redirect in
            guard let url = redirect.url, url.utf8.count - 1 <= room else {
                return Terminal.Redirect(status: redirect.status, url: nil)
            }
            room -= url.utf8.count - 1
            return redirect
        }
    }

    /// Pairs of status and URL, at most `WireLimits.redirectsBytes`.
    var text: String { bounded.map { "\($0.status) \($0.url ?? Self.omission)" }.joined(separator: " ") }
}
