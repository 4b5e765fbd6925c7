/// Simulated shell storage for bodies that wait too long: in the spool, or in memory while that is full.
struct SimulatedWaiting {
    /// Whether writes fail.
    var isFull = false
    /// Contents of bodies by name.
    private(set) var bodies: [String: String] = [:]
    /// Names of bodies that could not be written, but are available in memory.
    private var unwritten: Set<String> = []

    /// Stores a body. An existing one of the same name is not written again.
    /// - Returns: Whether it is stored.
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
        bodies = [:]
        unwritten = []
    }
}
