/// Why header fields cannot be sent to a server.
public struct HeaderFieldError: Error, Hashable, Sendable, CustomStringConvertible {
    /// What is wrong.
    public enum Code: Hashable, Sendable, CaseIterable {
        /// No colon, or no token before it: RFC 9110, section 5.6.2.
        case invalidName
        /// A control character other than a tab in the value: RFC 9110, section 5.5.
        case invalidValue
        /// A field about framing, the connection or the host, which are libcurl's business.
        case reservedName
        /// More than `HTTPLimits.headerFields` fields.
        case tooManyFields
        /// More than `HTTPLimits.headerBytes` bytes.
        case tooLarge
    }

    public let code: Code

    /// The number of the line that is wrong, from 1.
    public let line: Int

    /// A sentence for people. It holds nothing of the fields.
    public var description: String {
        switch code {
        case .invalidName: "Header line \(line) does not begin with a valid field name and a colon."
        case .invalidValue: "Header line \(line) holds a control character."
        case .reservedName: "Header line \(line) sets a field that only the connection may set."
        case .tooManyFields: "There are more than \(HTTPLimits.headerFields) header fields."
        case .tooLarge: "The header fields are longer than \(HTTPLimits.headerBytes) bytes."
        }
    }
}
