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

    /// Pairs of status and URL, at most `WireLimits.redirectsBytes`. A URL without room is omitted.
    var text: String {
        var text = ""
        for (index, redirect) in enumerated() {
            let status = "\(index > 0 ? " " : "")\(redirect.status) "
            // Each further redirect needs a space, its status, a space and a mark.
            let rest = (count - index - 1) * 6
            let url = redirect.url.flatMap { url in
                text.utf8.count + status.utf8.count + url.utf8.count + rest <= WireLimits.redirectsBytes ? url : nil
            }
            text += status + (url ?? Self.omission)
        }
        return text
    }
}
