/// The TLS sessions of running transfers, and which of them the peer ended by close_notify. libcurl takes the end of a
/// connection for the end of a body with and without it.
///
/// A number is given out once: the address of a session can be that of the next before the transfer of the first has
/// been asked for its end.
struct SessionTable {
    /// By number; whether close_notify came. An entry for each running transfer at most.
    private var sessions: [UInt: Bool] = [:]
    private var lastNumber: UInt = 0

    /// - Returns: the number of a session from now on.
    mutating func enter() -> UInt {
        lastNumber += 1
        sessions[lastNumber] = false
        return lastNumber
    }

    /// Notes close_notify of a session. Ignores a session whose transfer has ended.
    mutating func noteGoodbye(_ number: UInt) {
        if sessions[number] != nil { sessions[number] = true }
    }

    /// Forgets a session. - Returns: whether close_notify came.
    mutating func leave(_ number: UInt) -> Bool { sessions.removeValue(forKey: number) ?? false }
}
