/// TLS sessions of running transfers, and whether the peer sent close_notify on each. libcurl accepts the end of a
/// connection as the end of a body in both cases.
///
/// Numbers are never reused. The address of a session may be reused for another one before the end of the first
/// transfer is evaluated.
struct TLSSessions {
    /// Whether close_notify arrived, by session number. At most one entry per running transfer.
    private var sessions: [UInt: Bool] = [:]
    private var lastNumber: UInt = 0

    /// - Returns: Number of a new session.
    mutating func enter() -> UInt {
        lastNumber += 1
        sessions[lastNumber] = false
        return lastNumber
    }

    /// Records close_notify of a session. Ignores a session whose transfer has ended.
    mutating func noteGoodbye(_ number: UInt) {
        if sessions[number] != nil { sessions[number] = true }
    }

    /// Removes a session. - Returns: Whether close_notify arrived.
    mutating func leave(_ number: UInt) -> Bool { sessions.removeValue(forKey: number) ?? false }
}
