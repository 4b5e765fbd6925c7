package import EarshotWire

/// Name of a handler in the namespace of its principal. Equal names of two principals are different handlers.
package struct HandlerKey: Hashable {
    /// Its principal.
    package let principal: Handle<Principal>
    package let id: HandlerID

    package init(_ principal: Handle<Principal>, _ id: HandlerID) {
        self.principal = principal
        self.id = id
    }

    /// Names of all subtrees that contain this handler, shortest first.
    var prefixes: [HandlerKey] { id.prefixes.map { HandlerKey(principal, $0) } }

    package static func == (left: HandlerKey, right: HandlerKey) -> Bool {
        left.principal == right.principal && left.id == right.id
    }

    /// Skips the principal of a bus with one user, since names alone spread well there.
    package func hash(into hasher: inout Hasher) {
        hasher.combine(id)
        if principal != PrincipalTable.administrator { hasher.combine(principal) }
    }
}
