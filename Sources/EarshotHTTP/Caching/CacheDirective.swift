internal import EarshotWire

/// Directive of a `Cache-Control` field: RFC 9111, section 5.2.
struct CacheDirective {
    /// Argument of a directive.
    enum Argument {
        case none
        /// Token, or content of a quoted string.
        case value([UInt8])
        /// Malformed argument. The directive applies nonetheless, because its sender wanted a restriction.
        case unreadable
    }

    /// Name in lower case.
    let name: [UInt8]
    let argument: Argument

    /// Parses a list member; nil if it does not begin with a token.
    init?(_ member: ArraySlice<UInt8>) {
        let token = member.prefix(while: \.isToken)
        guard !token.isEmpty else { return nil }
        name = token.map(\.lowercased)
        let rest = member[token.endIndex...]
        if rest.isEmpty {
            argument = .none
        } else if rest.first == UInt8(ascii: "=") {
            let text = rest.dropFirst()
            if let content = FieldList.unquoted(text) {
                argument = .value(content)
            } else {
                argument = !text.isEmpty && text.allSatisfy(\.isToken) ? .value(Array(text)) : .unreadable
            }
        } else {
            argument = .unreadable
        }
    }

    /// Argument in seconds; nil if it is not a number. RFC 9111, section 1.2.2.
    var seconds: Int64? {
        guard case .value(let bytes) = argument else { return nil }
        return DeltaSeconds.parse(bytes)
    }
}
