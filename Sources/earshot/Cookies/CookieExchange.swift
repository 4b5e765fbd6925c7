internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// The cookies of one run of `get`: sends those of a file to the jar of its handler, and saves the jar at the end.
final class CookieExchange {
    /// Maximum number of fields in a message: as many as a jar evaluates.
    private static let maximumFieldsPerMessage = 50
    /// Maximum length of the fields of a message in bytes. The rest of a head is for handler and URL.
    private static let maximumFieldBytesPerMessage = 48 << 10

    private let handler: HandlerID
    private let cookies: [FileCookie]
    /// Path of the file to write; nil for none.
    private let output: String?
    private var cookiesToSave: [FileCookie] = []
    private var isQuerying = false
    /// Whether the jar was read to its end, or needs no reading.
    private(set) var isComplete: Bool

    /// - Parameters:
    ///   - cookies: cookies for the jar.
    ///   - output: file for the cookies of the jar at the end; nil for none.
    init(_ cookies: [FileCookie], output: String?, of handler: HandlerID) {
        self.handler = handler
        self.cookies = cookies
        self.output = output
        isComplete = output == nil
    }

    /// Sends the cookies of the file to the broker. The caller sends its requests after them.
    func sendFileCookies(_ connection: ClientConnection) {
        // A jar needs a handler of its root.
        connection.subscribe(.handler(handler))
        let now = Int64(time(nil))
        let live = cookies.filter { $0.expires.map { $0 > now } ?? true }
        for message in Self.messagesByHost(live) {
            connection.storeCookies(message.fields, from: message.url, for: handler)
        }
    }

    /// Returns the cookies as messages of one host each. The order of a host's cookies stays.
    static func messagesByHost(_ cookies: [FileCookie]) -> [(url: String, fields: [UInt8])] {
        var messageIndices: [String: Int] = [:]
        var messages: [(url: String, fields: [UInt8])] = []
        var counts: [Int] = []
        for cookie in cookies {
            let field = cookie.setCookieField
            if let index = messageIndices[cookie.url], counts[index] < maximumFieldsPerMessage,
                messages[index].fields.count + 1 + field.count <= maximumFieldBytesPerMessage
            {
                messages[index].fields += [UInt8(ascii: "\n")] + field
                counts[index] += 1
            } else {
                messageIndices[cookie.url] = messages.count
                messages.append((cookie.url, field))
                counts.append(1)
            }
        }
        return messages
    }

    /// Queries the cookies of the jar, once.
    func queryJar(_ connection: ClientConnection) {
        guard !isQuerying, !isComplete else { return }
        isQuerying = true
        connection.query(.cookies(handler))
    }

    /// Handles an answer to a query.
    ///
    /// - Returns: whether it was for the jar.
    func handleAnswer(_ query: Query, _ json: [UInt8], _ session: BusSession) -> Bool {
        guard case .cookies = query else { return false }
        guard let answer = session.parseAnswer(json) else { return true }
        cookiesToSave += answer.items(ofMember: "cookies").compactMap(FileCookie.init)
        if let next = answer.member("cookies-next")?.scalarText {
            session.connection.query(.cookies(handler), QueryPage(cursor: next))
        } else {
            isComplete = true
        }
        return true
    }

    /// Writes the file.
    func save() throws(CommandError) {
        guard let output else { return }
        guard isComplete else {
            throw CommandError(
                .cannotWrite, "cannot write \(output): the broker did not send the cookies; repeat the command")
        }
        try CookieFile.write(cookiesToSave, to: output)
    }
}
