internal import EarshotCore

/// End of a page of handlers: the name of its last one, and the principal of that.
///
/// The text is a handler's name. For another principal it is `/NUMBER/NAME`, which no handler is called.
struct HandlerCursor: Equatable {
    /// Number of the principal.
    let principal: Int
    let name: String

    init(principal: Handle<Principal>, name: String) {
        self.init(principal: principal.index, name: name)
    }

    private init(principal: Int, name: String) {
        self.principal = principal
        self.name = name
    }

    /// Parses the `after` of a page. Only the administrator's pages reach other principals.
    init(_ text: String, for principal: Handle<Principal>) {
        let words = text.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        guard principal == PrincipalTable.administrator, words.count == 3, words[0].isEmpty,
            let other = Int32(words[1]), other > principal.number
        else {
            self.init(principal: principal, name: text)
            return
        }
        self.init(principal: Int(other), name: String(words[2]))
    }

    /// The `after` of the next page of this principal.
    func text(_ principal: Handle<Principal>) -> String {
        self.principal == principal.index ? name : "/\(self.principal)/\(name)"
    }
}
