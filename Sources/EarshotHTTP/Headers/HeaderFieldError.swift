/// Error in the header fields of a request, for which the broker refuses it.
public struct HeaderFieldError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kinds of errors.
    public enum Code: Hashable, Sendable, CaseIterable {
        /// No colon, or no token before it: RFC 9110, section 5.6.2.
        case invalidName
        /// A control character other than a tab in the value: RFC 9110, section 5.5.
        case invalidValue
        /// Field for framing, connection or host, which libcurl sets.
        case reservedName
        /// More than `HTTPLimits.headerFields` fields.
        case tooManyFields
        /// More than `HTTPLimits.headerBytes` bytes.
        case tooLarge
    }

    public let code: Code

    /// Number of the faulty line, from 1.
    public let line: Int

    /// Name of a reserved field, in lower case; nil for other errors.
    public var name: String?

    /// Message for the user. It contains no part of the fields but a reserved name.
    public var description: String {
        switch code {
        case .invalidName: "Header line \(line) does not begin with a valid field name and a colon."
        case .invalidValue: "Header line \(line) holds a control character."
        case .reservedName: "The request may not set the field \(name ?? "") (header line \(line)): \(reason); omit it."
        case .tooManyFields: "There are more than \(HTTPLimits.headerFields) header fields."
        case .tooLarge: "The header fields are longer than \(HTTPLimits.headerBytes) bytes."
        }
    }

    /// Reason why a field is reserved.
    private var reason: String {
        switch name {
        case "host": "it follows from the URL"
        case "content-length": "it follows from the body"
        case "expect": "the bus does not wait for a server's consent to a body"
        default: "it belongs to the connection, which other requests may share"
        }
    }
}
