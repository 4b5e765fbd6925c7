import EarshotWire

@testable import EarshotCore

/// The namespace of the administrator, for tests with one principal.
extension HandlerRegistry {
    private static func key(_ id: HandlerID) -> HandlerKey { HandlerKey(PrincipalTable.administrator, id) }

    mutating func add(_ id: HandlerID) -> (number: Handle<HandlerEntry>, isFirstOfRoot: Bool) {
        addHandler(Self.key(id))
    }

    func handle(of id: HandlerID) -> Handle<HandlerEntry>? { handle(of: Self.key(id)) }

    func removing(_ id: HandlerID) -> [Handle<HandlerEntry>] { handlersBeingRemoved(formerly: Self.key(id)) }

    func matching(_ pattern: HandlerPattern) -> [Handle<HandlerEntry>] {
        handlers(matching: pattern, of: PrincipalTable.administrator)
    }

    func position(of name: String) -> OrderedHandles<HandlerEntry>.Position {
        namePosition(of: name, PrincipalTable.administrator)
    }

    mutating func subscribe(_ client: Handle<ClientSession>, toSubtree id: HandlerID) -> Bool {
        subscribe(client, toSubtree: Self.key(id))
    }

    mutating func unsubscribe(_ client: Handle<ClientSession>, fromSubtree id: HandlerID) -> Bool {
        unsubscribe(client, fromSubtree: Self.key(id))
    }
}
