/// Error in header fields of a request.
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

    /// Message for the user. It contains no part of the fields.
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
