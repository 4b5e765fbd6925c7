import EarshotWire

@testable import EarshotCore

/// The namespace of the administrator, for tests with one principal.
extension HandlerRegistry {
    private static func key(_ id: HandlerID) -> HandlerKey { HandlerKey(PrincipalTable.administrator, id) }

    mutating func add(_ id: HandlerID) -> (number: Int32, isFirstOfRoot: Bool) { add(Self.key(id)) }

    func number(of id: HandlerID) -> Int32? { number(of: Self.key(id)) }

    func purging(_ id: HandlerID) -> [Int32] { purging(Self.key(id)) }

    func matching(_ pattern: HandlerPattern) -> [Int32] { matching(pattern, of: PrincipalTable.administrator) }

    func position(of name: String) -> OrderedNumbers.Position { position(of: name, PrincipalTable.administrator) }

    mutating func subscribe(_ client: Int32, toSubtree id: HandlerID) -> Bool {
        subscribe(client, toSubtree: Self.key(id))
    }

    mutating func unsubscribe(_ client: Int32, fromSubtree id: HandlerID) -> Bool {
        unsubscribe(client, fromSubtree: Self.key(id))
    }
}
