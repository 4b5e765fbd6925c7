/// One member of a `Cache-Control` field: RFC 9111, section 5.2.
struct CacheDirective {
    /// What follows the name.
    enum Argument {
        case none
        /// A token, or the content of a quoted string.
        case value([UInt8])
        /// Something else. The name counts nonetheless: who wrote it wanted to restrict.
        case unreadable
    }

    /// Lower-case.
    let name: [UInt8]
    let argument: Argument

    /// Takes a member apart; nil if no token is in front.
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

    /// The argument as a number of seconds; nil if it is none. RFC 9111, section 1.2.2.
    var seconds: Int64? {
        guard case .value(let bytes) = argument else { return nil }
        return DeltaSeconds.parse(bytes)
    }
}
