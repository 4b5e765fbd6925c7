internal import EarshotWire

/// Name of a handler in the namespace of its principal. Equal names of two principals are different handlers.
struct HandlerKey: Hashable {
    /// Its principal.
    let principal: Handle<Principal>
    let id: HandlerID

    init(_ principal: Handle<Principal>, _ id: HandlerID) {
        self.principal = principal
        self.id = id
    }

    /// Names of all subtrees that contain this handler, shortest first.
    var prefixes: [HandlerKey] { id.prefixes.map { HandlerKey(principal, $0) } }

    static func == (left: HandlerKey, right: HandlerKey) -> Bool {
        left.principal == right.principal && left.id == right.id
    }

    /// Skips the principal of a bus with one user, since names alone spread well there.
    func hash(into hasher: inout Hasher) {
        hasher.combine(id)
        if principal != PrincipalTable.administrator { hasher.combine(principal) }
    }
}
