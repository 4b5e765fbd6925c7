internal import EarshotCore
internal import EarshotWire

/// What waits too long for memory, as the shell keeps it: in the spool, or in its own memory when that is full.
struct SimulatedWaiting {
    /// Whether nothing can be written.
    var isFull = false
    private(set) var terminals: [WaitingID: (terminal: Terminal, content: String?)] = [:]
    /// Contents of bodies by their names.
    private(set) var bodies: [String: String] = [:]
    /// Names of those that could not be written: they are there for who looks for them meanwhile.
    private var unwritten: Set<String> = []

    /// - Returns: false if another waits there.
    mutating func keep(_ terminal: Terminal, _ content: String?, as id: WaitingID) -> Bool {
        terminals.updateValue((terminal, content), forKey: id) == nil
    }

    /// - Returns: false if none waits there.
    mutating func forget(_ id: WaitingID) -> Bool { terminals.removeValue(forKey: id) != nil }

    /// Keeps a body. What is there under its name is not written again.
    /// - Returns: whether that can be.
    mutating func keep(_ content: String?, as name: String) -> Bool {
        let isWritten = bodies[name] != nil && !unwritten.contains(name)
        bodies[name] = content
        if isFull, !isWritten { unwritten.insert(name) } else { unwritten.remove(name) }
        return isWritten || !isFull
    }

    mutating func release(_ name: String) {
        bodies[name] = nil
        unwritten.remove(name)
    }

    mutating func kill() {
        terminals = [:]
        bodies = [:]
        unwritten = []
    }
}
